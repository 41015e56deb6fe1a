"""A program's own grader, with workers that grade in no time."""

import asyncio
import contextlib
import hashlib
import queue
import threading
from concurrent.futures import CancelledError, Future

import pytest

from evaluator.batch.workers import worker_pool
from evaluator.batch.workers.worker_handle import NoWorker
from evaluator.errors import ProblemNotFound, UsageError
from evaluator.records import DeviceKind, Status
from tests.batch.fakes import soon
from tests.library import grade_many, grade_stream, grade_stream_async
from warpgrade import (
    Candidate,
    GradeOptions,
    Grader,
    ProblemError,
    ProblemText,
    Progress,
    grade,
)


def test_a_grader_keeps_its_workers(worker):
    with Grader(device="emulated", jobs=2) as grader:
        statuses = [grader.grade("relu", f"# right {number}").status for number in range(20)]
        assert grader.grade("relu", "# wrong").status is Status.WRONG_RESULT
    assert statuses == [Status.CORRECT] * 20
    assert len(worker.started) <= 2
    soon(lambda: all(each.closed for each in worker.started))  # by the threads of the slots


def test_many_threads_share_one(worker):
    found = {}
    with Grader(device="emulated", jobs=3) as grader:

        def ask(number):
            found[number] = grader.grade("relu", f"# {'right' if number % 2 else 'wrong'} {number}", name=str(number))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert {number: card.submission.name for number, card in found.items()} == {n: str(n) for n in range(30)}
    assert all((card.status is Status.CORRECT) == bool(number % 2) for number, card in found.items())


def test_what_the_machine_failed_is_a_card(worker):
    with Grader(device="emulated", jobs=1) as grader:
        assert grader.grade("relu", "# lost 9").status is Status.INFRA_ERROR
        assert grader.grade("relu", "# broken").reason.next_step == "mend its get_inputs"


def test_leaving_cancels_what_waits(worker):
    with Grader(device="emulated", jobs=1) as grader:
        hanging, waiting = grader.submit("relu", "# hanging"), grader.submit("relu", "# right")
    assert hanging.cancelled()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="between start"):
        grader.submit("relu", "# right")


def test_it_starts_and_closes_without_a_block(worker):
    grader = Grader(device="emulated", jobs=1)
    for _ in range(2):
        assert grader.start() is grader
        with pytest.raises(RuntimeError, match="already"):
            grader.start()
        assert grader.grade("relu", "# right").correct
        grader.close()
        grader.close()
        with pytest.raises(RuntimeError, match="between start"):
            grader.submit("relu", "# right")
    assert all(each.closed or each.interrupted.is_set() for each in worker.started)


def test_equal_code_of_a_list_is_graded_once(worker):
    answers = ["# right", "# wrong", "<think>\nhm\n</think>\n```python\nclass ModelNew: 1\n```\n", None]
    sources = [answers[n % 4] for n in range(16)] + ["Another text.\n```python\nclass ModelNew: 1\n```\n"]
    given = [Candidate("relu", source, f"name {n}") for n, source in enumerate(sources)]
    seen = []
    graded = grade_many(given, device="emulated", jobs=3, on_progress=seen.append)
    assert [card.submission.name for card in graded] == [f"name {n}" for n in range(17)]
    assert [graded[n].status for n in range(0, 16, 4)] == [Status.CORRECT] * 4
    assert [graded[n].status for n in range(1, 16, 4)] == [Status.WRONG_RESULT] * 4
    del worker.graded["unread"]
    assert sorted(worker.graded.values()) == [1, 1, 1]
    assert sorted(progress.done for progress in seen) == list(range(1, 18))
    assert {progress.card.submission.name for progress in seen} == {f"name {n}" for n in range(17)}


def test_equal_code_for_problems_of_two_names_is_graded_twice(worker):
    texts = [ProblemText(PROBLEM, name) for name in ("first", "second")]
    grade_many([Candidate(text, "# right") for text in texts], device="emulated", size="full")
    assert worker.graded["# right"] == 2


def test_a_list_that_is_given_up_cancels_copies_too(worker):
    def fail(progress):
        raise KeyboardInterrupt

    given = [Candidate("relu", each) for each in ("# right", "# hanging", "# hanging")]
    with Grader(device="emulated", jobs=1) as grader, pytest.raises(KeyboardInterrupt):
        grader.grade_many(given, on_progress=fail)


def test_a_machine_without_workers_gives_a_card_to_everybody(worker, monkeypatch):
    def hire(slot, log):
        raise NoWorker("the machine is gone")

    monkeypatch.setattr(worker_pool, "LocalWorker", hire)
    given = [Candidate("relu", f"# right {n}") for n in range(5)]
    with Grader(device="emulated", jobs=2) as grader:
        graded = [*grader.grade_many(given), grader.grade("relu", "# right")]
    assert {card.status for card in graded} == {Status.INFRA_ERROR}
    assert len(graded) == 6
    assert "the machine is gone" in graded[0].reason.message
    assert grade("relu", "# right", device="emulated").status is Status.INFRA_ERROR
    assert [card.status for _, card in grade_stream(given, device="emulated")] == [Status.INFRA_ERROR] * 5


def test_no_answer_is_an_empty_answer(worker):
    with Grader(device="emulated", jobs=1) as grader:
        assert grader.grade("relu", None) == grader.grade("relu", "")
        assert grader.grade("relu", None).submission.sha256 is None
        with pytest.raises(TypeError, match="not list: pass the content"):
            grader.submit("relu", [{"role": "assistant", "content": "# right"}])
    with pytest.raises(TypeError, match="not int"):
        grade("relu", 5, device="emulated")
    with pytest.raises(TypeError, match="a ProblemText, not NoneType"):
        grade(None, "# right", device="emulated")
    for graded in (grade_many, lambda *given, **options: list(grade_stream(*given, **options))):
        with pytest.raises(TypeError, match="expected a Candidate, not str"):
            graded(["# right"], device="emulated")


PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


n = 64


def get_inputs():
    return [torch.rand(n)]


def get_init_inputs():
    return []
"""


def test_a_problem_may_be_text(worker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tanh").write_text("not read")
    text = ProblemText(PROBLEM, "tanh")
    with Grader(device="cpu", size="full", jobs=1) as grader:
        cards = grader.grade_many(
            [Candidate(text, "# right"), Candidate(text, "# wrong"), Candidate("relu", "# right")]
        )
        assert [card.problem.name for card in cards] == ["tanh", "tanh", "relu"]
        assert cards[0].problem.sha256 == hashlib.sha256(PROBLEM.encode()).hexdigest()
        for broken, said in (("class Model: pass", "get_inputs"), ("\ud800", "UTF-8"), ("x" * (9 << 20), "larger")):
            with pytest.raises(ProblemError, match=said):
                grader.submit(ProblemText(broken), "# right")
        with pytest.raises(ProblemError, match="not a valid problem name"):
            grader.submit(ProblemText(PROBLEM, "a\nb"), "# right")
        # A text is never a name, and a name never a text or a path.
        with pytest.raises(UsageError, match="no problem named"):
            grader.submit("tanh", "# right")
        with pytest.raises(UsageError, match="text is no name") as refused:
            grader.submit(PROBLEM, "# right")
        assert "ProblemText(source, name)" in refused.value.hint
        worker.graded.clear()
        with pytest.raises(UsageError, match="no problem named 'rleu'"):
            grader.grade_many([Candidate("relu", "# right"), Candidate("rleu", "# right")])
        assert not worker.graded


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rleu", "did you mean relu?"),
        ("nothing like it", "lists all problems"),
        ("level1/19_ReLU", "problems of KernelBench are not shipped"),
        ("\x1b[2J" + "x" * 100_000, "lists all problems"),
    ],
)
def test_an_unknown_problem_is_an_error_of_its_own(name, hint, worker):
    with Grader(device="emulated", jobs=1) as grader:
        for ask in (lambda: grader.submit(name, "# right"), lambda: grade(name, "# right", device="emulated")):
            with pytest.raises(ProblemNotFound, match="no problem named") as caught:
                ask()
            assert hint in caught.value.hint
            assert len(caught.value.message) < 200
            assert "\x1b" not in caught.value.message
        assert grader.refusal_of("relu") is None
        assert hint in grader.refusal_of(name).hint


def test_a_broken_problem_is_not_said_to_be_missing_alone(tmp_path, worker):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "reference.py").write_text("")
    (tmp_path / "broken" / "problem.toml").write_text("title = ")
    with Grader(device="emulated", jobs=1, problems=tmp_path) as grader:
        with pytest.raises(UsageError, match="1 are broken, as `warpgrade problems list` says"):
            grader.submit("broken", "# right")
        assert "1 are broken" in grader.refusal_of("broken").message


@pytest.mark.parametrize(
    "ask",
    [
        lambda **options: grade("relu", "# right", **options),
        Grader,
    ],
    ids=["grade", "Grader"],
)
def test_options_are_read_at_once(ask):
    with pytest.raises(TypeError, match="unknown option 'devcie': did you mean device"):
        ask(devcie="emulated")
    with pytest.raises(TypeError, match="unknown option 'zzz': allowed: device, size, tolerance"):
        ask(zzz=1)
    with pytest.raises(UsageError, match=r"device cannot be 'tpu': allowed: auto, cuda, emulated, cpu$"):
        ask(device="tpu")


def test_one_grade_of_cpp_for_the_cpu_is_made_there(worker, monkeypatch):
    cpp = '# right load_inline(cpp_sources="x.data_ptr<float>()")'
    monkeypatch.setattr("evaluator.grading.resolved_request.default_device", lambda: DeviceKind.EMULATED)
    assert grade("relu", cpp).device.kind is DeviceKind.CPU
    assert grade("relu", f"```python\n{cpp}\nclass ModelNew: pass\n```").device.kind is DeviceKind.CPU
    assert grade("relu", cpp, device="emulated").device.kind is DeviceKind.EMULATED
    assert grade("relu", "# right").device.kind is DeviceKind.EMULATED


def test_every_option_is_explained():
    assert all(f"\n        {name}: " in (GradeOptions.__doc__ or "") for name in GradeOptions.__struct_fields__)


@pytest.mark.parametrize("is_async", [False, True])
def test_candidates_may_wait_for_earlier_cards(worker, is_async):
    statuses = []

    def follow_up(answers, card):
        statuses.append(card.status)
        answers.put_nowait(None if card.correct else Candidate("relu", "# right"))

    async def program():
        answers = asyncio.Queue()
        answers.put_nowait(Candidate("relu", "# wrong"))

        async def coming():
            while (candidate := await answers.get()) is not None:
                yield candidate

        async for _, card in grade_stream_async(coming(), device="emulated", jobs=2):
            follow_up(answers, card)

    if is_async:
        asyncio.run(program())
    else:
        answers = queue.Queue()
        answers.put(Candidate("relu", "# wrong"))
        for _, card in grade_stream(iter(answers.get, None), device="emulated", jobs=2):
            follow_up(answers, card)
    assert statuses == [Status.WRONG_RESULT, Status.CORRECT]


def test_a_stream_that_fails_reads_no_further_candidate(worker):
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield Candidate("relu", "# right")

    failed = Future()
    failed.set_exception(CancelledError())
    with Grader(device="emulated", jobs=2) as grader:
        pending = iter([*(Future() for _ in range(grader.at_once - 1)), failed])
        grader.submit_candidate = lambda _: next(pending)
        with pytest.raises(CancelledError):
            next(grader.grade_stream(endless()))
        soon(lambda: all(thread.name != "candidates" for thread in threading.enumerate()))
        assert len(read) == grader.at_once


def test_a_stream_reads_two_candidates_for_each_worker_ahead(worker):
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield Candidate("relu", "# hanging")

    def take_one():
        with contextlib.suppress(CancelledError):
            next(grader.grade_stream(endless()))

    with Grader(device="emulated", jobs=2) as grader:
        program = threading.Thread(target=take_one)
        program.start()
        soon(lambda: len(read) >= grader.at_once)
    program.join(120)
    assert len(read) == grader.at_once == 4


def test_a_program_that_loses_interest_ends_the_workers(worker):
    async def program():
        endless = (Candidate("relu", "# right") for _ in iter(int, 1))
        graded = grade_stream_async(endless, device="emulated", jobs=2)
        assert (await anext(graded))[1].status is Status.CORRECT
        await graded.aclose()

    asyncio.run(program())
    soon(lambda: all(each.closed or each.interrupted.is_set() for each in worker.started))


def test_a_program_signs_its_cards(worker, tmp_path, monkeypatch):
    from evaluator.files.card_files import card_bytes
    from evaluator.signatures import keys
    from evaluator.signatures.signing import State, signature_of

    monkeypatch.setattr(keys, "_stash", [])
    public = keys.make_key(tmp_path / "key", "a lab")
    with Grader(device="cpu", jobs=1, signing_key=tmp_path / "key") as grader:
        graded = grader.grade("relu", "# right")
    many = [
        card for _, card in grade_stream([Candidate("relu", "# wrong")], device="cpu", signing_key=tmp_path / "key")
    ]
    for card in (graded, *many):
        assert signature_of(card_bytes(card)) == (State.INTACT, public)


def test_a_list_keeps_its_order(worker, monkeypatch):
    """The first candidate finishes last, and an object may be listed twice."""
    others, made = threading.Event(), worker.grade

    def grade_first_last(self, order, on_stage):
        if order.submission.name == "slow":
            assert others.wait(120)
        result = made(self, order, on_stage)
        if order.submission.name == "wrong":
            others.set()
        return result

    monkeypatch.setattr(worker, "grade", grade_first_last)
    twice = Candidate("relu", "# right 1", "twice")
    given = [Candidate("relu", "# right 2", "slow"), twice, Candidate("relu", "# wrong", "wrong"), twice]
    for candidates in (given, tuple(given)):
        others.clear()
        found = grade_many(candidates, device="emulated", jobs=2)
        assert [card.submission.name for card in found] == ["slow", "twice", "wrong", "twice"]
    others.clear()
    came = [candidate.name for candidate, _ in grade_stream(iter(given), device="emulated", jobs=2)]
    assert came.index("slow") > came.index("wrong")


def test_progress_of_many_is_reported_in_the_callers_thread(worker, capfd):
    candidates = [Candidate("relu", f"# {'right' if n % 2 else 'wrong'} {n}", str(n)) for n in range(6)]
    seen: list[tuple[Progress, threading.Thread]] = []
    cards = grade_many(
        candidates, device="emulated", jobs=2, on_progress=lambda each: seen.append((each, threading.current_thread()))
    )
    assert [each.done for each, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert {each.total for each, _ in seen} == {6}
    assert {thread for _, thread in seen} == {threading.current_thread()}
    assert {each.candidate.name: each.card for each, _ in seen} == {card.submission.name: card for card in cards}
    assert [card.submission.name for card in cards] == [each.name for each in candidates]
    assert capfd.readouterr() == ("", "")


def test_progress_comes_before_the_last_grade(worker):
    def stop(progress):
        assert progress.card.correct
        raise KeyError("enough")

    with Grader(device="emulated", jobs=2) as grader:
        with pytest.raises(KeyError, match="enough"):  # the other grade would hang
            grader.grade_many([Candidate("relu", "# hanging"), Candidate("relu", "# right")], on_progress=stop)
        assert grader.grade("relu", "# right again").correct
    assert grade_many([], device="emulated", on_progress=stop) == []
