"""action.yml: its script passes inputs of any content on as words, and ends with the batch's status."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
ACTION = (CHECKOUT / "action.yml").read_text()
STUB = """#!{python}
import json, os, pathlib, sys

with open({log!r}, "a") as log:
    log.write(json.dumps([os.environ.get("GITHUB_ACTIONS"), sys.argv[1:], os.environ["WARPGRADE_NO_CONFIG"]]) + "\\n")
if sys.argv[1] == "batch":
    pathlib.Path(os.environ["RUN"]).mkdir()
    pathlib.Path(os.environ["RUN"], "manifest.json").touch()
    sys.exit(1)
"""


def script():
    (found,) = re.findall(r"^      run: \|\n((?:        .*\n|\n)+)", ACTION, re.MULTILINE)
    # The last line of the script ends the job of a test's machine, not of a workflow's.
    return textwrap.dedent(found).replace("sudo -n sysctl", "true")


@pytest.fixture
def act(tmp_path):
    def run(**inputs):
        stub = tmp_path / "bin" / "warpgrade"
        stub.parent.mkdir()
        stub.write_text(STUB.format(python=sys.executable, log=str(tmp_path / "log")))
        stub.chmod(0o755)
        named = {"PROBLEMS": "", "SHARE": "", "DEVICE": "auto", "RUN": "run", "GITHUB_ACTIONS": "true"}
        path = f"{stub.parent}:{os.environ['PATH']}"
        environment = {**os.environ, **named, **inputs, "PATH": path}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script()]
        code = subprocess.run(words, cwd=tmp_path, env=environment, check=False).returncode
        calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        assert {call.pop() for call in calls} == {"1"}  # no file of the checkout sets options
        return code, calls

    return run


def test_an_input_is_one_word_and_no_command(act, tmp_path):
    evil = "a b; touch pwned; $(touch pwned) `touch pwned` *"
    code, calls = act(SUBMISSIONS=evil, PROBLEMS=evil, SHARE=evil, DEVICE="cpu", RUN="my run")
    assert code == 1
    assert not (tmp_path / "pwned").exists()
    options = ["--problems", evil, "--require-own-kernel", evil]
    assert calls[0] == ["true", ["batch", evil, "--run", "my run", "--device", "cpu", *options]]
    rows = ["--junit", "my run/junit.xml", "--submissions", "my run/submissions.csv"]
    assert calls[1] == ["true", ["report", "my run", *rows]]
    assert len(calls) == 2


def test_what_is_left_out_is_no_option(act):
    code, calls = act(SUBMISSIONS="kernels")
    assert code == 1
    assert calls[0][1] == ["batch", "kernels", "--run", "run", "--device", "auto"]
    assert len(calls) == 2


def test_no_input_is_part_of_a_script():
    lines = [line for line in ACTION.splitlines() if "${{" in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r" +(?:[A-Z_]+|value|python-version): \$\{\{ [\w.-]+ \}\}", line), line


def test_every_option_exists():
    from evaluator.commands.main import warpgrade

    for name in ("batch", "report"):
        (words, *_) = re.findall(rf"warpgrade {name} .*?(?:\|\| status|> )", script(), re.DOTALL)
        known = {option for param in warpgrade.commands[name].params for option in param.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= known
