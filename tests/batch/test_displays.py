import io
import re

from rich.console import Console

from evaluator.batch.progress_display import LineDisplay, TableDisplay, display_on
from evaluator.batch.runs.index import row_of
from evaluator.batch.runs.inputs import from_text
from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.tasks import Refused
from evaluator.batch.scheduler import CardResult
from evaluator.batch.workers.worker_pool import TaskBegan
from evaluator.records import SizeName
from tests import cards

TASK = from_text("# \x1b[2J", "mine\x1b[2J", "mine.py", Problems(None, (SizeName.SMALL,)).find("relu"))


def result(how="graded", make=cards.card, card="relu/mine-_.json"):
    return CardResult(row_of(make(), card, 1, 1), how, 1)


def shown(table):
    drawn = io.StringIO()
    Console(file=drawn, width=100, color_system=None).print(table.live.get_renderable())
    return drawn.getvalue()


def test_the_table_shows_stages_counts_and_the_last_results():
    table = TableDisplay(Console(file=io.StringIO(), width=100), total=5)
    table.began(TaskBegan(0, TASK, "build", 1.0))
    table.began(TaskBegan(1, TASK, "time", 2.0))
    before = shown(table)
    assert "0/5" in before
    assert "build" in before
    assert "\x1b[2J" not in before
    timed = next(line for line in before.splitlines() if "time" in line)
    assert " s " not in timed  # nothing ticks while a grade is timed
    table.result(result("kept"))
    table.result(result(make=cards.wrong_card, card=TASK.card))
    table.refused(Refused("in.jsonl:3", "the line is not a submission"))
    table.result(result(card="relu/other.json"))
    after = shown(table)
    assert "4/5" in after
    assert "2 correct" in after
    assert "1 wrong_result" in after
    assert after.count("relu/relu_inline, correct, 2.98x") == 1  # not the one from before
    assert "build" not in after  # its slot is free


def test_what_is_not_correct_stays_on_the_terminal():
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    table = TableDisplay(console, total=5)
    with table.live:
        table.result(result("kept", make=cards.crashed_card))
        table.result(result())
        table.result(result(make=cards.wrong_card))
        table.refused(Refused("submissions/" + "x" * 60 + ".py", "\x1b[2Jthere is no problem named 'rleu'"))
    lines = left_by(stream.getvalue())
    wrong = cards.wrong_card().reason.code
    assert lines[0].startswith(f"relu/relu_inline, wrong_result, {wrong}, ")
    assert "".join(lines[1:]).replace(" ", "").endswith("thereisnoproblemnamed'rleu'")
    assert max(map(len, lines)) <= 80
    assert "correct, 2.98x" not in "".join(lines)


def left_by(written):
    """Give the lines that a terminal still shows after `written`: it moves up and erases, and draws again."""
    lines = [""]
    row = 0
    for text, code in re.findall(r"([^\x1b\r\n]+|\n|\r)|\x1b\[([0-9;?]*[A-Za-z])", written):
        if code == "2K":
            lines[row] = ""
        elif code.endswith("A"):
            row -= int(code[:-1] or 1)
        elif text == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif text and text != "\r":
            lines[row] += text
    return [line for line in lines if line.strip()]


def test_lines_pass_over_what_is_from_before():
    stream = io.StringIO()
    lines = LineDisplay(stream, total=3)
    lines.result(result("kept"))
    lines.result(result("kept"))
    lines.result(result())
    assert stream.getvalue().splitlines() == [
        "2 already have a card",
        "[3/3] relu/relu_inline, correct, 2.98x, 29.3 s",
    ]


def test_a_pipe_gets_lines_and_no_escapes():
    stream = io.StringIO()
    with display_on(stream, None) as display:
        display.result(result())
    assert "\x1b" not in stream.getvalue()
