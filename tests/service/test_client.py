"""The client class: the interface of `Grader`, across lost connections, refusals and the death of the server."""

import asyncio
import inspect
import threading
from concurrent.futures import CancelledError, wait

import pytest

from evaluator.service import client
from evaluator.service.tokens import revoke_tokens
from evaluator.submission.read import read_submission
from tests.service.conftest import held_port, soon
from warpgrade import Candidate, Grader, InfraError, ProblemText, RemoteGrader, UsageError


def test_the_methods_are_those_of_a_grader():
    for name in (
        "start",
        "close",
        "submit",
        "grade",
        "grade_many",
        "grade_stream",
        "grade_async",
        "__enter__",
        "__aexit__",
    ):
        own, other = (inspect.signature(getattr(kind, name)) for kind in (RemoteGrader, Grader))
        assert str(own) == str(other), name


def test_cards_come_in_the_order_of_the_candidates(shared):
    sources = [f"# {20 - number} order {number}" for number in range(20)]
    with RemoteGrader(shared.url, shared.alice) as grader:
        cards = grader.grade_many([Candidate("relu", source, f"n{n}") for n, source in enumerate(sources)])
        assert grader.grade("relu", "# 0 alone").correct
    assert [card.submission.source for card in cards] == sources
    assert [card.submission.name for card in cards] == [f"n{n}" for n in range(20)]


def test_a_stream_yields_each_candidate_once(shared):
    candidates = [Candidate("relu", f"# 1 streamed {number}") for number in range(30)]
    with RemoteGrader(shared.url, shared.alice, at_once=4) as grader:
        found = list(grader.grade_stream(iter(candidates)))
    assert sorted(candidate.source for candidate, _ in found) == sorted(each.source for each in candidates)
    assert all(card.submission.source == candidate.source for candidate, card in found)


def test_awaiting_lets_others_run(shared):
    async def program():
        async with RemoteGrader(shared.url, shared.bob) as grader:
            return await asyncio.gather(*(grader.grade_async("relu", f"# 1 awaited {n}") for n in range(5)))

    assert [card.submission.source for card in asyncio.run(program())] == [f"# 1 awaited {n}" for n in range(5)]


def test_two_programs_of_one_client_get_their_own_cards(shared):
    with RemoteGrader(shared.url, shared.alice) as one, RemoteGrader(shared.url, shared.alice) as other:
        futures = [(n, (one, other)[n % 2].submit("relu", f"# 1 programs {n}")) for n in range(20)]
        assert all(future.result(300).submission.source == f"# 1 programs {n}" for n, future in futures)


def test_refusals_are_raised_by_the_call_or_its_future(shared):
    with RemoteGrader(shared.url, shared.alice) as grader:
        with pytest.raises(UsageError, match=r"\(422\).*no problem named 'rleu'") as unknown:
            grader.grade("rleu", "# 0 x")
        assert unknown.value.hint == "did you mean relu?"
        with pytest.raises(UsageError, match="as text"):
            grader.grade(ProblemText("x = 1"), "# 0 x")
        with pytest.raises(TypeError):
            grader.submit("relu", b"# 0 x")
        with pytest.raises(TypeError):
            grader.submit(5, "# 0 x")
        with pytest.raises(UsageError):
            grader.submit("relu", "# 0 x", name="")
        with pytest.raises(UsageError, match="8 MiB"):
            grader.grade("relu", "x" * (9 << 20))
    with pytest.raises(RuntimeError):
        grader.grade("relu", "# 0 x")


def test_a_wrong_token_or_address_is_told_at_the_start(shared):
    with pytest.raises(UsageError, match="401"):
        RemoteGrader(shared.url, "wg_wrong").start()
    with held_port() as held, pytest.raises(InfraError, match="did not answer"):
        RemoteGrader(f"http://127.0.0.1:{held.getsockname()[1]}", shared.alice, patience_s=0.3).start()
    for url, token in [("ftp://x", "a"), ("nonsense", "a"), (shared.url, "a\nb"), (shared.url, "")]:
        with pytest.raises(UsageError):
            RemoteGrader(url, token)


def test_closing_cancels_what_waits_in_the_queue(service, monkeypatch):
    monkeypatch.setattr(client, "_CANCEL_S", 300.0)
    served = service(at_once=1)
    grader = RemoteGrader(served.url, served.alice).start()
    futures = [grader.submit("relu", f"# gated closing {number}") for number in range(20)]
    soon(lambda: b"waiting_grades 19.0" in served.ask("GET", "/metrics", served.bob)[2])
    futures[-1].cancel()
    soon(lambda: b"waiting_grades 19.0" not in served.ask("GET", "/metrics", served.bob)[2])
    grader.close()
    grader.close()
    assert all(future.cancelled() for future in futures if not future.done() or future.cancelled())
    with pytest.raises(CancelledError):
        futures[-1].result(0)
    soon(lambda: b"waiting_grades 0.0" in served.ask("GET", "/metrics", served.bob)[2])
    assert served.graded == []


def test_closing_cancels_a_submission_on_its_way(service, monkeypatch):
    monkeypatch.setattr(client, "_CANCEL_S", 300.0)
    served = service(at_once=1)
    served.submit(served.bob, "# gated")
    grader = RemoteGrader(served.url, served.alice).start()
    request = grader._transport.request

    def answered_late(method, path, **named):
        content = request(method, path, **named)
        soon(lambda: grader._transport.is_closed)
        return content

    monkeypatch.setattr(grader._transport, "request", answered_late)
    future = grader.submit("relu", "# 0 on its way")
    soon(lambda: b"waiting_grades 1.0" in served.ask("GET", "/metrics", served.bob)[2])
    grader.close()
    assert future.cancelled()
    soon(lambda: b"waiting_grades 0.0" in served.ask("GET", "/metrics", served.bob)[2])


def test_a_killed_server_costs_no_card(process):
    served = process(at_once=2)
    with RemoteGrader(served.url, served.alice) as grader:
        futures = [grader.submit("relu", f"# 20 killed {number}") for number in range(60)]
        for share in (10, 30):
            soon(lambda share=share: sum(each.done() for each in futures) >= share)
            served.kill()
            served.start()
        assert [each.result(300).submission.source for each in futures] == [f"# 20 killed {n}" for n in range(60)]
    assert len(served.graded) <= 60 + 2 * 2


def test_a_service_that_stays_away_fails_the_grades_and_later_ones(process):
    served = process(at_once=1)
    with RemoteGrader(served.url, served.alice, patience_s=0.5) as grader:
        future = grader.submit("relu", "# 60000 long")
        soon(lambda: b"in_progress 1.0" in served.ask("GET", "/metrics", served.bob)[2])
        served.kill()
        with pytest.raises(InfraError):
            future.result(300)
        with pytest.raises(InfraError):
            grader.submit("relu", "# 0 later").result(300)


def test_a_revoked_token_fails_the_grades(service):
    served = service(at_once=1)
    with RemoteGrader(served.url, served.alice) as grader:
        future = grader.submit("relu", "# gated long")
        soon(lambda: b"in_progress 1.0" in served.ask("GET", "/metrics", served.bob)[2])
        revoke_tokens(served.state / "tokens", "alice")
        with pytest.raises(UsageError, match="401"):
            future.result(300)


def test_lost_state_is_told_instead_of_waited_for(process):
    served = process(at_once=1)
    with RemoteGrader(served.url, served.alice) as grader:
        assert grader.grade("relu", "# 0 first").correct
        future = grader.submit("relu", "# 60000 long")
        soon(lambda: b"in_progress 1.0" in served.ask("GET", "/metrics", served.bob)[2])
        served.kill()
        for path in served.state.glob("journal.sqlite*"):
            path.unlink()
        served.start()
        with pytest.raises(UsageError, match="lost its state"):
            future.result(300)


def test_threads_share_a_grader(shared):
    found = {}
    with RemoteGrader(shared.url, shared.bob) as grader:

        def ask(number):
            found[number] = grader.grade("relu", f"# 1 thread {number}").submission.source

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wait([grader.submit("relu", "# 0 last")], 60).not_done
    assert found == {number: f"# 1 thread {number}" for number in range(16)}


def test_a_folder_is_sent_as_one_text(shared, tmp_path):
    (tmp_path / "submission.toml").write_text('entry = "main.py"\nsources = ["main.py", "kernel.cuh"]\n')
    (tmp_path / "main.py").write_text("# 1 from a folder\n")
    (tmp_path / "kernel.cuh").write_text("#pragma once\n")
    with RemoteGrader(shared.url, shared.alice) as grader:
        card = grader.grade("relu", tmp_path)
        with pytest.raises(UsageError):
            grader.grade("relu", tmp_path / "absent.py")
    assert card.submission.source == read_submission(tmp_path).source
    assert "kernel.cuh" in card.submission.source
