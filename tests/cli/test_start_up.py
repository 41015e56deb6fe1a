"""Modules that a grade imports before the ready judge is asked: each import adds milliseconds to every grade."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]

ASKED = """
import sys
import evaluator.api.ready_socket as ready_judge

def asked():
    print(*sys.modules)
    raise SystemExit(0)

ready_judge.opened = asked
from evaluator.commands import main
main.run(sys.argv[1:])
"""
TOO_SLOW = {
    "torch",
    "numpy",
    "rich",
    "jsonschema",
    "jinja2",
    "filelock",
    "sqlite3",
    "subprocess",
    "traceback",
    "json",
    "difflib",
}
NOT_OF_A_CLIENT = (
    *("evaluator.compile", "evaluator.emulator", "evaluator.lint", "evaluator.roofline", "evaluator.runner"),
    *("evaluator.sandbox", "evaluator.timing", "evaluator.toolchain", "evaluator.cuda_source", "evaluator.batch.runs"),
    *(
        "evaluator.grading.pipeline",
        "evaluator.report.run",
        "evaluator.report.card",
        "evaluator.service.server",
        "starlette",
        "uvicorn",
    ),
)
OTHER_COMMANDS = {"agents", "machine", "problems", "reference", "results", "serving", "signatures"}


def imported(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", ASKED, *arguments], cwd=TOP, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_a_grade_asks_the_ready_judge_before_it_imports_what_only_a_judge_needs():
    found = imported("grade", "relu", "solutions/relu/cuda_plain.py", "--device", "emulated", "--ready")
    assert "evaluator.api.ready_client" in found
    assert not TOO_SLOW & found
    assert not [name for name in found if name.startswith(NOT_OF_A_CLIENT)]
    assert not {f"evaluator.commands.{name}" for name in OTHER_COMMANDS} & found


def test_every_command_is_listed_and_found():
    said = subprocess.run(
        [sys.executable, "cli.py", "--help"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout
    for name in ("batch", "cache", "check-card", "compare", "doctor", "explain", "grade", "keygen", "mcp", "new"):
        assert f"\n  {name} " in said
    from evaluator.commands.main import _MODULES, warpgrade

    names = [name for names in _MODULES.values() for name in names]
    assert sorted(names) == sorted(warpgrade.commands)
    assert all(warpgrade.commands[name].name == name for name in names)


def test_the_ready_judge_needs_no_extra():
    code = (
        "import sys; sys.modules |= dict.fromkeys(['httpx', 'prometheus_client']); import evaluator.service.local_door"
    )
    subprocess.run([sys.executable, "-c", code], cwd=TOP, check=True)


def test_what_works_beside_the_import_of_pytorch_needs_no_pytorch():
    """A single grade starts processes, the lint and builds meanwhile; a worker says that it lives."""
    modules = "evaluator.grading.pipeline, evaluator.batch.workers.worker, evaluator.judge.context.context_pool"
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert not {"torch", "rich", "jsonschema"} & set(done.stdout.split())
