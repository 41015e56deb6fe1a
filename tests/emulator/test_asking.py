"""What the judge makes of a child that reads a text and does not answer."""

import socket
import threading

from evaluator.emulator.parsing.parse_in_sandbox import full_size_numbers, run_sizes


class Child:
    """A child whose end of the socket a test holds."""

    def __init__(self, act):
        self.socket, theirs = socket.socketpair()
        self._theirs = theirs
        self.killed = False
        act(theirs)

    def wait_exit(self, timeout_s):
        return None

    def kill(self):
        self.killed = True
        self._theirs.close()


def asked(act):
    made = []
    found = full_size_numbers(
        "f(4096)", {"n": 4096}, {"n": 8}, lambda entry, limits: made.append(Child(act)) or made[0]
    )
    assert made[0].killed
    return found


def test_who_brings_the_child_down_has_no_excuse():
    """Other failures of a child: tests/sandbox/test_question.py."""
    assert asked(lambda theirs: theirs.close()) == []


def test_one_that_answers_is_heard():
    def act(theirs):
        threading.Thread(target=run_sizes, args=(theirs, None), daemon=True).start()

    assert asked(act) == [(4096, 1)]
