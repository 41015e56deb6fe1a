"""Which answers the sealed clock takes for those to its question. Without a GPU: the conversation alone."""

import pytest

from evaluator.findings import Code, finding
from evaluator.frames import Call, Done, Items, Queued, Scalar, Table
from evaluator.judge.sealed_clock import SealedClock
from evaluator.judge.session import Fault
from evaluator.records import Status

QUESTION = Call(
    index=3,
    token=77,
    ticket=5,
    empty=False,
    forked=False,
    schedule=None,
    args=Items(is_tuple=False, items=[]),
    kwargs=Table(keys=[], items=[]),
    output_gradients=None,
)
REFUSED = Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, "out of place"))


class Conversation:
    """A session whose runner says these frames, one after the other."""

    def __init__(self, *frames):
        self._frames = list(frames)

    def answered(self, within_s):
        return True

    def answer(self, stage, timeout_s):
        return self._frames.pop(0)

    def out_of_place(self, answer):
        return REFUSED


def heard(*frames):
    clock = object.__new__(SealedClock)
    clock._session = Conversation(*frames)
    clock._let_go = lambda: None
    clock._watch_the_end = lambda: 0.005
    return clock._converse(QUESTION, 1.0, 1.0)


def test_an_answer_that_holds_the_questions_token_is_one():
    done = Done(index=3, token=77, outputs=Scalar(value=None))
    answer, _, lag_ms = heard(Queued(index=3), done)
    assert (answer, lag_ms) == (done, 0.005)


@pytest.mark.parametrize("changes", [{"token": 76}, {"token": 0}, {"index": 2}])
def test_one_that_could_be_sent_before_the_question_was_read_is_none(changes):
    done = Done(**{"index": 3, "token": 77, "outputs": Scalar(value=None)} | changes)
    assert heard(Queued(index=3), done) is REFUSED


def test_an_answer_before_the_word_that_all_is_queued_is_none():
    assert heard(Done(index=3, token=77, outputs=Scalar(value=None))) is REFUSED
    assert heard(Queued(index=2), Done(index=3, token=77, outputs=Scalar(value=None))) is REFUSED
