"""Options that make a grade stricter: own kernels required, every layer of the sandbox required."""

from types import SimpleNamespace

import pytest

from evaluator.commands import main as cli
from evaluator.errors import SandboxUnavailable
from evaluator.judge.stages import require_sandbox_layers

SUBMISSION = "class ModelNew: pass\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SUBMISSION)

    def command(*arguments):
        code = cli.run(list(arguments))
        return code, capfd.readouterr().err

    return command


@pytest.mark.parametrize("command", [("grade", "relu", "mine.py"), ("batch", ".", "--run", "r")])
@pytest.mark.parametrize("share", ["0", "-1", "1.01", "nan", "inf", "half"])
def test_what_is_no_share_is_refused(run, command, share):
    code, said = run(*command, "--require-own-kernel", share)
    assert code == 2
    assert "--require-own-kernel" in said


@pytest.mark.parametrize("command", [("grade", "relu", "mine.py"), ("batch", ".", "--run", "r")])
def test_every_wall_and_none_cannot_be_had_together(run, command):
    code, said = run(*command, "--device", "cpu", "--strict", "--sandbox", "none")
    assert code == 2
    assert "--strict" in said


def context(missing, *, strict):
    return SimpleNamespace(
        terms=SimpleNamespace(options=SimpleNamespace(strict=strict)),
        sandbox=SimpleNamespace(missing=missing),
    )


def test_a_missing_wall_is_refused_where_every_one_is_asked_for():
    with pytest.raises(SandboxUnavailable, match="this machine lacks seccomp, own-proc") as raised:
        require_sandbox_layers(context(["seccomp", "own-proc"], strict=True))
    assert "doctor" in raised.value.hint
    require_sandbox_layers(context(["seccomp"], strict=False))
    require_sandbox_layers(context([], strict=True))
