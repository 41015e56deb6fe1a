"""The journal: results, limits of stored bytes, a full disk, a clock that jumps, attempts."""

import asyncio
import datetime
import sqlite3
from types import SimpleNamespace

import pytest

from evaluator.errors import InfraError
from evaluator.service import journal as module
from evaluator.service.journal import Added, Arrival, Final, Journal, QueuedGrade, QueueFull, QueueLimits
from evaluator.service.messages import GradeState

LIMITS = QueueLimits(of_a_client=100, of_all=1000, bytes_of_a_client=1000, bytes_of_all=2500, kept_bytes=1 << 20)
LARGE = QueueLimits(of_a_client=100, of_all=1000, bytes_of_a_client=1 << 30, bytes_of_all=1 << 30, kept_bytes=1 << 30)
CANCELLED = Final(GradeState.CANCELLED)


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock):
    """Factory of a journal in the same folder; the earlier journal is closed first."""
    made = []

    def again(limits=LIMITS):
        if made:
            made.pop().close()
        made.append(Journal(tmp_path, limits, clock))
        return made[0]

    yield again
    made.pop().close()


@pytest.fixture
def journal(opened):
    return opened()


def arrival(client="alice", key=None, text="x"):
    return Arrival(client, key, text.encode(), text, "relu", "candidate")


async def finished(journal, client="alice", card=b"card", state=GradeState.FINISHED):
    grade = (await journal.add(arrival(client))).grade.id
    await journal.finish(grade, Final(state, None, card))
    return grade


def test_a_second_result_changes_nothing(journal):
    async def program():
        grade = await finished(journal, card=b"first")
        await journal.finish(grade, Final(GradeState.FAILED, reason="second"))
        return (
            await journal.card("alice", grade),
            (await journal.grades("alice", [grade]))[0].state,
            await journal.waiting(),
        )

    assert asyncio.run(program()) == (b"first", GradeState.FINISHED, [])


def test_a_commit_survives_a_power_cut(journal):
    settings = [journal._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]


async def stored(journal, client="alice"):
    """Return the number of the client's final grades."""
    return sum(grade.state.is_final for grade in await journal.page(client, None, 100))


def test_old_grades_are_forgotten(journal, clock):
    async def program():
        for _ in range(3):
            await finished(journal)
        await journal.add(arrival())
        clock.now_s += 11
        kept, forgotten = await journal.forget(12.0), await journal.forget(10.0)
        await finished(journal)
        return kept, forgotten, await stored(journal), len(await journal.waiting())

    assert asyncio.run(program()) == (0, 3, 1, 1)


def test_a_jump_of_the_systems_clock_deletes_no_card(journal, monkeypatch):
    class Jumped(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.datetime.now(zone) + datetime.timedelta(days=5000)

    jumped = SimpleNamespace(datetime=Jumped, UTC=datetime.UTC)

    async def program():
        with monkeypatch.context() as changed:
            changed.setattr(module, "datetime", jumped)
            first = await finished(journal)
        grades = [first, await finished(journal), await finished(journal)]
        with monkeypatch.context() as changed:
            changed.setattr(module, "datetime", jumped)
            await journal.forget(3600.0)
        return [await journal.card("alice", grade) for grade in grades]

    assert asyncio.run(program()) == [b"card"] * 3


def test_ages_add_up_over_the_starts_of_the_service(opened, clock):
    async def start(keep_s):
        journal = opened()
        await finished(journal)
        clock.now_s += 10
        forgotten = await journal.forget(keep_s)
        journal.close()
        return forgotten

    async def program():
        found = [await start(25.0)]
        clock.now_s = 5.0  # The machine starts anew: the monotonic clock begins from zero.
        found.append(await start(25.0))
        found.append(await start(25.0))
        return found

    assert asyncio.run(program()) == [0, 0, 1]


def test_the_bytes_of_waiting_requests_are_limited(journal):
    async def program():
        text = "x" * 900
        first = await journal.add(arrival(text=text, key="1"))
        found = [await journal.add(arrival(text=text)), await journal.add(arrival(text=text, key="1"))]
        found += [await journal.add(arrival(client=f"c{n}", text=text)) for n in range(2)]
        await journal.finish(first.grade.id, CANCELLED)
        return [*found, await journal.add(arrival(text=text))]

    again, repeated, other, beyond, later = asyncio.run(program())
    assert (again, beyond) == (QueueFull(is_the_clients=True), QueueFull(is_the_clients=False))
    assert not repeated.is_new
    assert (other.is_new, later.is_new) == (True, True)


def test_the_oldest_cards_of_a_client_make_room(journal):
    card = b"x" * (300 << 10)

    async def program():
        bobs = await finished(journal, "bob", card)
        grades = [await finished(journal, card=card) for _ in range(10)]
        cards = [await journal.card("alice", grade) for grade in grades]
        number = await stored(journal)
        large = await finished(journal, card=5 * card)  # The newest card stays in any case.
        return cards, number, await stored(journal), await journal.card("alice", large), bobs

    cards, number, at_last, large, bobs = asyncio.run(program())
    assert cards == [None] * 7 + [card] * 3
    assert (number, at_last, len(large)) == (3, 1, 5 * len(card))
    assert asyncio.run(journal.card("bob", bobs)) == card


def test_grades_without_a_card_are_limited_too(opened):
    journal = opened(LIMITS._replace(kept_bytes=20_000))

    async def program():
        for _ in range(50):
            await finished(journal, card=None, state=GradeState.CANCELLED)
        return await stored(journal)

    assert asyncio.run(program()) == 20


def test_a_failed_disk_is_an_infra_error_and_stores_nothing(journal, monkeypatch):
    async def program():
        class Fails:
            def __init__(self, connection):
                self.connection = connection

            @property
            def in_transaction(self):
                return self.connection.in_transaction

            def execute(self, statement, *values):
                found = self.connection.execute(statement, *values)
                if statement.startswith("INSERT"):
                    raise OSError("no space")
                return found

        whole = journal._connection
        monkeypatch.setattr(journal, "_connection", Fails(whole))
        with pytest.raises(InfraError, match="no space"):
            await journal.add(arrival())
        monkeypatch.undo()
        assert await journal.waiting() == []
        assert isinstance(await journal.add(arrival()), Added)

    asyncio.run(program())


def test_a_full_disk_refuses_a_large_request_and_still_takes_a_card(opened):
    journal = opened(LARGE)

    async def program():
        grade = (await journal.add(arrival())).grade.id
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        large = arrival(text="x" * (1 << 20))
        found = await asyncio.gather(
            journal.add(large),
            journal.finish(grade, Final(GradeState.FINISHED, None, b"card")),
            journal.add(large),
            return_exceptions=True,
        )
        return found, await journal.card("alice", grade), await journal.waiting()

    found, card, waiting = asyncio.run(program())
    assert [type(each) for each in found] == [InfraError, type(None), InfraError]
    assert "full" in str(found[0])
    assert (card, waiting) == (b"card", [])


def test_a_failed_rollback_does_not_end_the_thread(journal):
    class Broken:
        in_transaction = True

        def execute(self, statement, *_):
            raise sqlite3.OperationalError(f"disk I/O error in {statement}")

    async def program():
        whole, journal._connection = journal._connection, Broken()
        with pytest.raises(InfraError, match="disk I/O error"):
            await asyncio.wait_for(journal.waiting(), 30)
        journal._connection = whole
        return await asyncio.wait_for(journal.waiting(), 30)

    assert asyncio.run(program()) == []


def test_attempts_are_counted_until_the_result(journal):
    async def program():
        grade = (await journal.add(arrival(text="x"))).grade.id
        begun = [(await journal.begin(grade)) for _ in range(2)]
        await journal.uncount([grade])
        waiting = await journal.waiting()
        await journal.finish(grade, CANCELLED)
        await journal.uncount([grade])
        return grade, begun, waiting, await journal.begin(grade)

    grade, begun, waiting, last = asyncio.run(program())
    assert [(each.request, each.attempt) for each in begun] == [(b"x", 1), (b"x", 2)]
    assert (waiting, last) == ([QueuedGrade("alice", grade, 1)], None)


def test_a_journal_of_another_version_is_refused(opened, tmp_path):
    opened().close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(InfraError, match="another version"):
        Journal(tmp_path, LIMITS)
