"""Submissions that attack the grader rather than the problem. None of them may be correct; honest twins must be."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import PATIENT_S, TOP, module

LAZY = module(
    "class Lazy(torch.Tensor):",
    "    @classmethod",
    "    def __torch_function__(cls, function, types, args=(), kwargs=None):",
    "        print('asked', function)",
    "        return torch.relu(kept[0]) if kept else super().__torch_function__(function, types, args, kwargs or {})",
    "kept = []",
    forward=["kept[:] = [x]", "return torch.empty_like(x).as_subclass(Lazy)"],
)
OVERRIDES = module(
    forward=[
        "y = torch.empty_like(x)",
        "right = torch.relu(x)",
        "for name in ('cpu', 'clone', 'contiguous', 'to', 'double', 'numpy', 'float', 'reshape', 'tolist'):",
        "    setattr(y, name, lambda *args, **kwargs: right)",
        "return y",
    ]
)
PATCHES = module(
    "import json, os, sys, time, statistics, pathlib",
    "torch.allclose = torch.equal = lambda *args, **kwargs: True",
    "torch.testing.assert_close = lambda *args, **kwargs: None",
    "class Event:",
    "    def __init__(self, **kwargs): pass",
    "    record = synchronize = lambda self, *args: None",
    "    elapsed_time = lambda self, other: 1e-6",
    "torch.cuda.Event = Event",
    "torch.cuda.synchronize = lambda *args: None",
    "time.perf_counter = time.monotonic = lambda: 0.0",
    "time.perf_counter_ns = time.monotonic_ns = lambda: 0",
    "statistics.median = lambda values: 1e-9",
    "for name in list(sys.modules):",
    "    if name.startswith('evaluator.judge'): sys.modules[name] = sys.modules['json']",
    "card = json.dumps({'status': 'correct', 'reason': None, 'speedup': 1e9})",
    "print(card)",
    "print(card, file=sys.stderr)",
    "for folder in ('.', '..', '/', '/tmp', '/dev/shm', os.path.expanduser('~'), *sys.path, *ARGUMENTS):",
    "    for name in ('card.json', 'scorecard.json', 'sitecustomize.py', 'torch.py', 'conftest.py'):",
    "        try: pathlib.Path(folder, name).write_text(card)",
    "        except OSError: pass",
    forward=["os._exit(0)"],
)
KILLER = module(
    "import os, signal",
    "def kill():",
    "    pids = [os.getppid(), *(int(name) for name in os.listdir('/proc') if name.isdigit()), *range(2, 200)]",
    "    for pid in pids:",
    "        if pid not in (os.getpid(), 0):",
    "            try: os.kill(pid, signal.SIGKILL)",
    "            except OSError: pass",
    "    os.kill(-1, signal.SIGKILL)",
    forward=["kill()", "return x"],
)


def test_a_lazy_tensor_works_in_the_runner_or_not_at_all(grade):
    run = grade(LAZY)
    assert run.card.status is Status.WRONG_RESULT
    # Its answers are temporary for every request of the runner: they share memory from call to call.
    assert run.reason in (Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES, Code.NOT_FINITE, Code.OUTPUT_REUSED)


def test_overrides_on_the_tensor_never_reach_the_judge(grade):
    run = grade(OVERRIDES)
    assert run.card.status is Status.WRONG_RESULT
    assert run.reason in (Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES, Code.NOT_FINITE)


def test_patches_and_forged_cards_change_nothing(grade, tmp_path):
    run = grade(PATCHES.replace("*ARGUMENTS", f"{str(tmp_path)!r}, {str(TOP)!r}"))
    card = run.assert_verdict(Status.RUNTIME_ERROR, Code.RUNNER_DIED)
    assert '"speedup": 1000000000.0' in card.output.text
    assert not (TOP / "sitecustomize.py").exists()


def test_killing_everything_in_sight_kills_only_the_killer(grade):
    run = grade(KILLER)
    assert run.card.status is Status.RUNTIME_ERROR
    assert run.reason is Code.RUNNER_DIED


SECRET = "canary-5f1d"
SNOOP = module(
    "import gc, os, pathlib, sys",
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
        card = grader(tmp_path, source, timeout_s=PATIENT_S).assert_verdict(Status.CORRECT)
    finally:
        grader.environment.clear()
        grader.environment |= kept
        (other / "solution.py").unlink()
        other.rmdir()
    assert card.output.text == "judge: []\nend: 0\n"


THIEF = module(
    "import gc, sys, types",
    "def hunt(x):",
    "    found, frame = [], sys._getframe()",
    "    while frame is not None:",
    "        found += frame.f_locals.values()",
    "        frame = frame.f_back",
    "    for value in [*found, *gc.get_objects()]:",
    "        try:",
    "            if isinstance(value, torch.Tensor) and value.shape == x.shape and value is not x:",
    "                if value.data_ptr() != x.data_ptr(): yield value",
    "        except Exception: pass",
    forward=[
        "loot = list(hunt(x))",
        "print('found', len(loot), flush=True)",
        "y = torch.empty_like(x)",
        "for value in loot: y.copy_(value)",
        "return y",
    ],
)


def test_no_expected_output_is_within_reach(grade):
    run = grade(THIEF)
    assert run.card.status is Status.WRONG_RESULT
    # A wrong call is made again: from then on it finds what it was given and what it answered itself.
    assert run.card.output.text.startswith("found 0\n")


@pytest.mark.parametrize("mode", ["full", "none"])
def test_a_card_says_whether_there_was_a_sandbox(grade, mode):
    run = grade(module("print('hello')"), "--sandbox", mode)
    card = run.assert_verdict(Status.CORRECT)
    assert card.sandbox.mode == mode
    assert (Code.NO_SANDBOX in run.findings) == (mode == "none")
    assert ("I501" in run.out) == (mode == "none")
    assert card.output.text == "hello\n"
