"""A submission finds no trace of the key that signs its card: no variable, no file, no memory of the judge."""

import pytest

from evaluator.records import Status
from evaluator.signatures.keys import VARIABLE, make_key
from evaluator.signatures.signing import State, signature_of
from tests.grading.harness import CHECK, passable_folder

SOURCE = """\
import glob
import os
import torch

SEEN = []
for place in [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline"), {path!r}, {path!r} + ".pub"]:
    try:
        with open(place, "rb") as file:
            SEEN.append(file.read())
    except OSError:
        pass
SEEN += [repr(dict(os.environ)).encode()]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if any(b"warpgrade-ed25519" in each or {variable!r}.encode() in each for each in SEEN):
            raise RuntimeError("a key is in reach")
        if not any(b"TMPDIR" in each for each in SEEN):
            raise RuntimeError("nothing was seen at all")
        return torch.relu(x)
"""


@pytest.mark.parametrize("how", ["file", "path in a variable", "key in a variable"])
def test_a_submission_cannot_reach_the_key(how, grader, tmp_path):
    with passable_folder() as folder:  # the folder does not hide it: its mode and the view of files do
        key = folder / "key"
        public = make_key(key, "a lab")
        text = SOURCE.format(path=str(key), variable=VARIABLE)
        value = {"file": None, "path in a variable": str(key), "key in a variable": key.read_text()}[how]
        given = {} if value is None else {VARIABLE: value}
        before = dict(grader.environment)
        grader.environment.update(given)
        try:
            sign = ["--sign", key] if value is None else []
            (tmp_path / "mine.py").write_text(text)
            graded = grader.run(tmp_path, "relu", "mine.py", "--size", "awkward", *CHECK, *sign)
        finally:
            grader.environment.clear()
            grader.environment.update(before)
        assert graded.card is not None, graded.err
        assert graded.card.status is Status.CORRECT, graded.card.reason
        written = tmp_path / "card.json"
        seen = signature_of(written.read_bytes())
        assert (seen.state, seen.signer) == (State.INTACT, public)
        secret = key.read_text().split()[1]
        assert secret not in graded.out + graded.err + written.read_text()
