"""Signals that a certain thread takes."""

import contextlib
import os
import select
import signal
import threading


@contextlib.contextmanager
def another_thread():
    """A thread beside the main thread, without a signal mask."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        yield thread
    finally:
        ended.set()
        thread.join()


def deliver(number, thread):
    """Send a signal to `thread`, and wait until Python knows of it; the handler runs later, in the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        signal.pthread_kill(thread.ident, number)
        assert select.select([reading], [], [], 60.0)[0], "the signal is blocked"
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def interrupting(fork):
    """Return a fork whose child gets SIGINT before the child runs any further line."""

    def interrupted():
        waiting, ready = os.pipe()
        pid = fork()
        if pid == 0:
            os.read(waiting, 1)
        else:
            os.kill(pid, signal.SIGINT)
            os.write(ready, b".")
        os.close(waiting)
        os.close(ready)
        return pid

    return interrupted
