import signal
import subprocess
import sys

import pytest

from evaluator.interrupts import held_back
from tests.signals import another_thread, deliver

USERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def handled_by():
    """Have SIGINT handled otherwise for one test."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_end_of_the_block(handled_by):
    handled_by(signal.default_int_handler)
    reached = []
    with pytest.raises(KeyboardInterrupt), held_back(signal.SIGINT):
        reached += [signal.raise_signal(signal.SIGINT), "the end of the block"]
    assert reached == [None, "the end of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_another_thread_takes_waits_too(handled_by):
    """The handler runs in the main thread, whichever thread the kernel chose."""
    handled_by(signal.default_int_handler)
    reached = []
    with another_thread() as taker, pytest.raises(KeyboardInterrupt), held_back(signal.SIGINT):
        reached += [deliver(signal.SIGINT, taker), "the end of the block"]
    assert reached == [None, "the end of the block"]


def test_each_signal_reaches_its_own_handler():
    came = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in USERS}
    try:
        with held_back(*USERS):
            signal.raise_signal(signal.SIGUSR2)
            signal.raise_signal(signal.SIGUSR1)
            assert came == []
        assert came == [signal.SIGUSR2, signal.SIGUSR1]
        signal.raise_signal(signal.SIGUSR1)
        assert came == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_an_exception_of_the_block_does_not_drop_ctrl_c(handled_by):
    handled_by(signal.default_int_handler)

    def fail():
        signal.raise_signal(signal.SIGINT)
        raise ImportError("half of a package")

    with pytest.raises(KeyboardInterrupt), held_back(signal.SIGINT):
        fail()


def test_without_ctrl_c_nothing_is_raised(handled_by):
    handled_by(signal.default_int_handler)
    with held_back(signal.SIGINT):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_sigint_is_ignored_it_stays_so(handled_by):
    handled_by(signal.SIG_IGN)
    with held_back(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
        # A program's own handler would be the default one in what it starts.
        asked = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT).name)"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "SIG_IGN\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
