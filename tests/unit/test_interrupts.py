import signal
import subprocess
import sys

import pytest

from evaluator.interrupts import held_back


@pytest.fixture
def handled_by():
    """Have SIGINT handled otherwise for one test."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_end_of_the_block(handled_by):
    handled_by(signal.default_int_handler)
    reached = []
    with pytest.raises(KeyboardInterrupt), held_back():
        reached += [signal.raise_signal(signal.SIGINT), "the end of the block"]
    assert reached == [None, "the end of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_ctrl_c_nothing_is_raised(handled_by):
    handled_by(signal.default_int_handler)
    with held_back():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_sigint_is_ignored_it_stays_so(handled_by):
    handled_by(signal.SIG_IGN)
    with held_back():
        signal.raise_signal(signal.SIGINT)
        # A program's own handler would be the default one in what it starts.
        asked = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT).name)"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "SIG_IGN\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
