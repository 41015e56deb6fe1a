"""Files and processes within a submission's reach, and the card's sandbox; attacks are rows of `tests/zoo`."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import CHECK, TOP, module

SECRET = "canary-5f1d"
SNOOP = module(
    "import os, pathlib, sys",
    "SECRET = b'canary-' + b'5f1d'",
    "def tell(what, found): print(f'{what}: {found}', flush=True)",
    "def readable(path):",
    "    try: return pathlib.Path(path).read_bytes()[:4000]",
    "    except OSError: return b''",
    "for entry in os.listdir('/proc'):",
    "    text = readable(f'/proc/{entry}/environ') + readable(f'/proc/{entry}/cmdline')",
    "    if SECRET in text: tell('environ', entry)",
    "for folder in PLACES:",
    "    try: names = os.listdir(folder)",
    "    except OSError: names = []",
    "    if names: tell('listed', (folder, names[:3]))",
    "for root, folders, names in os.walk('/tmp'):",
    "    for name in names:",
    "        if SECRET in readable(os.path.join(root, name)): tell('file', os.path.join(root, name))",
    "if SECRET.decode() in str(dict(os.environ)) + str(sys.argv): tell('own environment', os.environ)",
    "try:",
    "    import evaluator.judge.trial.trial_runner; tell('imported', evaluator.judge.trial.trial_runner)",
    "except ImportError: pass",
    "tell('judge', [name for name in sys.modules if 'judge' in name])",
    "tell('end', 0)",
)


def test_nothing_of_the_machine_can_be_read(grader, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_text(SECRET)
    other = grader.temporary / "other"
    other.mkdir(mode=0o755)
    (other / "solution.py").write_text(SECRET)
    places = [TOP / "problems", TOP / "solutions", TOP / "tests", tmp_path, tmp_path / "home", other]
    source = f"PLACES = {[str(place) for place in places]}\n{SNOOP}"
    changed = {"HOME": str(tmp_path / "home"), "SOME_TOKEN": SECRET}
    kept = dict(grader.environment)
    grader.environment |= changed
    try:
        card = grader(tmp_path, source, *CHECK).assert_verdict(Status.CORRECT)
    finally:
        grader.environment.clear()
        grader.environment |= kept
        (other / "solution.py").unlink()
        other.rmdir()
    assert card.output.text == "judge: []\nend: 0\n"


@pytest.mark.parametrize("mode", ["full", "none"])
def test_a_card_says_whether_there_was_a_sandbox(grade, mode):
    run = grade(module("print('hello')"), *CHECK, "--sandbox", mode)
    card = run.assert_verdict(Status.CORRECT)
    assert card.sandbox.mode == mode
    assert (Code.NO_SANDBOX in run.findings) == (mode == "none")
    assert ("I501" in run.out) == (mode == "none")
    assert card.output.text == "hello\n"
