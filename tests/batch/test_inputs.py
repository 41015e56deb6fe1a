import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.batch.runs import inputs
from evaluator.batch.runs.inputs import expected, named_once, read_folder, read_lines
from evaluator.batch.runs.problems import MOST_CHARACTERS, MOST_TEXTS, Problems, ProblemText, RecentProblems
from evaluator.batch.runs.tasks import Refused, Shard, Task
from evaluator.errors import UsageError
from evaluator.files.card_files import file_name
from evaluator.grading.request import Unread
from evaluator.records import SizeName
from evaluator.submission.read import read_submission

KERNELBENCH = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


batch_size = 16


def get_inputs():
    return [torch.randn(batch_size)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def problems():
    return Problems(None, (SizeName.SMALL,))


def read(folder, problems):
    return {(item.problem.name, item.name): item for item in read_folder(folder, problems) if isinstance(item, Task)}


def test_a_folder_of_problems(hand_in, problems):
    top = hand_in({"relu/a.py": "x = 1", "softmax/b.py": "y = 2", "relu/.hidden.py": "", "relu/__pycache__/a.py": ""})
    found = read(top, problems)
    assert list(found) == [("relu", "a"), ("softmax", "b")]
    assert found["relu", "a"].submission.source == "x = 1"
    assert found["relu", "a"].card == "relu/a.json"


def test_submissions_to_other_problems_are_neither_wanted_nor_read(hand_in, monkeypatch):
    top = hand_in({"relu/a.py": "x = 1", "softmax/c.py": "y = 2", "reluu/d.py": ""})
    (top / "softmax" / "e.py").symlink_to(top / "relu" / "a.py")
    opened = []
    monkeypatch.setattr(inputs, "read_submission", lambda path, **_: opened.append(path.name) or read_submission(path))
    found = list(read_folder(top, Problems(None, (SizeName.SMALL,), ["relu", "linear_*"])))
    assert [item.planned.origin.rpartition("/")[2] for item in found] == ["a.py"]
    assert opened == ["a.py"]
    monkeypatch.undo()
    assert expected(top, Problems(None, (SizeName.SMALL,), ["relu", "linear_*"])) == 1
    lines = [{"problem": name, "sample": 0, "source": "x"} for name in ("relu", "softmax")]
    stream = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert [item.problem.name for item in read_lines(stream, "-", Problems(None, (SizeName.SMALL,), ["r*"]))] == [
        "relu"
    ]


def test_a_pattern_matches_the_real_name_of_a_kernelbench_file(hand_in, tmp_path):
    (tmp_path / "bench" / "level1").mkdir(parents=True)
    (tmp_path / "bench" / "level1" / "19_ReLU.py").write_text(KERNELBENCH)
    top = hand_in({"level_1_problem_19_sample_0_kernel.py": "x = 1"})
    for pattern in ("level1/*", "level1/19_ReLU", "*ReLU"):
        assert expected(top, Problems(tmp_path / "bench", (SizeName.FULL,), [pattern])) == 1


def test_a_pattern_without_problems_or_submissions_is_refused(hand_in):
    with pytest.raises(UsageError, match="--only level9/\\* matches no problem"):
        Problems(None, (SizeName.SMALL,), ["relu", "level9/*"])
    with pytest.raises(UsageError, match="contains no submissions to softmax"):
        expected(hand_in({"relu/a.py": "x = 1"}), Problems(None, (SizeName.SMALL,), ["softmax"]))


def test_answers_keep_their_suffix_and_stand_beside_files(hand_in, problems):
    answer = "Here:\n```python\nclass ModelNew: pass\n```\n"
    found = read(hand_in({"relu/a.py": "x = 1", "relu/a.md": answer, "relu/b.txt": "none"}), problems)
    assert list(found) == [("relu", "a.md"), ("relu", "a"), ("relu", "b.txt")]
    assert found["relu", "a.md"].submission.source == "class ModelNew: pass\n"
    assert isinstance(found["relu", "b.txt"].submission, Unread)
    assert found["relu", "b.txt"].key is None


def test_what_has_no_problem_is_refused_with_the_reason(hand_in, problems):
    items = list(read_folder(hand_in({"a.py": "", "rleu/a.py": ""}), problems))
    assert [item.reason for item in items] == [
        "it lies in no problem's folder: PROBLEM/NAME.py",
        "there is no problem named 'rleu'",
    ]


def test_a_run_folder_of_kernelbench(hand_in, tmp_path):
    file = tmp_path / "KernelBench" / "level1" / "19_ReLU.py"
    file.parent.mkdir(parents=True)
    file.write_text(KERNELBENCH)
    top = hand_in({f"level_1_problem_19_sample_{n}_kernel.py": f"x = {n}" for n in (0, 12)})
    found = read(top, Problems(tmp_path, (SizeName.FULL,)))
    assert list(found) == [("level1/19_ReLU", "sample_0"), ("level1/19_ReLU", "sample_12")]
    assert found["level1/19_ReLU", "sample_0"].card == "level1/19_ReLU/sample_0.json"
    small = next(iter(read_folder(top, Problems(tmp_path, (SizeName.SMALL,)))))
    assert small.problem.cases[SizeName.SMALL].axes == {"batch_size": 16}


def test_what_kernelbench_writes_beside_a_kernel_is_no_submission(hand_in, problems):
    kernel = "level_1_problem_19_sample_0_kernel.py"
    beside = [
        "level_1_problem_19_sample_0_prompt.txt",
        "prompt_level_1_problem_19.txt",
        "eval_result_level_1_problem_19.txt",
        "generation_config.yaml",
        "eval_results.json",
        "pass_at_k_results.json",
    ]
    top = hand_in(dict.fromkeys([kernel, *beside], ""))
    assert expected(top, problems) == 1
    assert [item.origin.rpartition("/")[2] for item in read_folder(top, problems)] == [kernel]
    # Any other text is an answer.
    assert expected(hand_in({"level_1_problem_19_sample_1.txt": "", "prompt.txt": ""}), problems) == 3


@pytest.mark.parametrize("name", ["level1/19_ReLU", "19_ReLU", "level3/9"])
def test_a_name_of_kernelbench_says_where_such_problems_come_from(name, tmp_path):
    assert "--problems DIR" in Problems(None, (SizeName.FULL,)).find(name)
    assert "--problems" not in Problems(tmp_path, (SizeName.FULL,)).find(name)
    assert "--problems" not in Problems(None, (SizeName.FULL,)).find("reluu")


def lines(*documents):
    return io.BytesIO(b"".join(json.dumps(document).encode() + b"\n" for document in documents))


LINE = {"problem": {"name": "mine", "source": KERNELBENCH}, "sample": 0, "source": "x = 1"}


def test_a_line_with_the_text_of_its_problem_is_refused(problems, monkeypatch):
    monkeypatch.setattr(problems, "read", lambda _: pytest.fail("no code of the text may run"))
    (item,) = read_lines(lines(LINE), "f", problems)
    assert (type(item), item.problem, item.name) == (Refused, "mine", "0")
    assert "--allow-problem-text accepts it" in item.reason


def test_a_line_may_have_the_text_of_its_problem_where_that_is_allowed():
    problems = Problems(None, (SizeName.FULL,))
    named = [
        LINE,
        LINE | {"sample": 1, "problem": {"name": "relu", "source": KERNELBENCH}},
        LINE | {"sample": 2, "problem": {"name": "mine", "source": f"{KERNELBENCH}\n# other"}},
        LINE | {"sample": 3, "problem": {"name": "other", "source": "x = 1"}},
        LINE | {"sample": 4, "problem": {"name": "../other", "source": KERNELBENCH}},
    ]
    items = list(read_lines(lines(*named), "f", problems, allows_problem_text=True))
    assert [type(item) for item in items] == [Task, Refused, Refused, Refused, Task]
    assert (items[0].problem.name, items[0].problem.source, items[0].card) == ("mine", KERNELBENCH, "mine/0.json")
    assert items[1].reason == "another problem is named 'relu'"
    assert items[2].reason == "another problem is named 'mine'"
    assert ".." not in items[4].card.split("/")


def test_only_selects_problems_as_text_by_name():
    found = read_lines(lines(LINE), "f", Problems(None, (SizeName.FULL,), ["relu"]), allows_problem_text=True)
    assert list(found) == []


def test_a_named_entry_is_looked_for_in_answers(hand_in):
    answer = "```python\nclass ModelNew: 1\n```\n```python\nclass Kernel: 1\n```\n"
    problems = Problems(None, (SizeName.SMALL,), entry="Kernel")
    (task,) = read_lines(lines({"problem": "relu", "sample": 0, "source": answer}), "f", problems)
    assert task.submission.source == "class Kernel: 1\n"
    (task,) = read_folder(hand_in({"relu/a.md": answer}), problems)
    assert task.submission.source == "class Kernel: 1\n"


def test_a_bad_line_does_not_hide_the_next(problems, monkeypatch):
    monkeypatch.setattr(inputs, "_MAX_LINE_BYTES", 200)
    good = json.dumps({"problem": "relu", "sample": 1, "source": "x = 1"}).encode()
    stream = io.BytesIO(b"{\n\n[]\n" + b"x" * 1000 + b"\n" + b"[" * 190 + b"\n" + b'{"problem": "relu"}\n' + good)
    items = list(read_lines(stream, "f", problems))
    assert [type(item) for item in items] == [Refused] * 5 + [Task]
    assert [item.origin for item in items[:5]] == ["f:1", "f:3", "f:4", "f:5", "f:6"]


def test_a_line_names_a_problem_and_never_a_path(problems, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "reference.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    named = [str(folder), "./mine", "mine", "../problems/relu", "relu/"]
    items = list(read_lines(lines(*({"problem": n, "sample": 0, "source": ""} for n in named)), "f", problems))
    assert all(isinstance(item, Refused) for item in items)


def test_a_lone_surrogate_is_no_text(problems):
    stream = io.BytesIO(b'{"problem": "relu", "sample": 0, "source": "\\ud800"}\n')
    (item,) = read_lines(stream, "f", problems)
    assert isinstance(item, Refused) or isinstance(item.submission, Unread)


def test_a_name_is_given_once(problems):
    document = {"problem": "relu", "sample": 0, "source": "x = 1"}
    items = list(named_once(read_lines(lines(document, document, document | {"source": "x = 2"}), "f", problems)))
    assert [type(item) for item in items] == [Task, Refused]
    assert items[1].reason == "relu/0 was handed in before, with other content"


def test_a_folder_that_is_not_there(tmp_path, problems):
    with pytest.raises(UsageError, match="cannot list"):
        list(read_folder(tmp_path / "none", problems))


@settings(max_examples=40)
@given(st.text(max_size=300), st.text(max_size=300))
def test_a_name_becomes_one_file_in_its_folder(first, second):
    for name in (first, second):
        made = file_name(name)
        assert Path("cards", f"{made}.json").parent == Path("cards")
        assert not made.startswith(".")
        assert len(os.fsencode(made)) < 200
    assert (file_name(first) == file_name(second)) == (first == second)


@given(st.integers(1, 7), st.lists(st.text(min_size=1), max_size=30))
def test_shards_part_a_batch(count, origins):
    items = [Refused(origin, "") for origin in origins]
    parts = [[item for item in items if Shard(number, count).holds(item)] for number in range(1, count + 1)]
    assert sorted(item.origin for part in parts for item in part) == sorted(origins)


def test_equal_submissions_fall_into_one_shard(hand_in, problems):
    tasks = list(read(hand_in({f"relu/{n}.py": f"x = {n % 3}" for n in range(30)}), problems).values())
    for task in tasks:
        twins = [each for each in tasks if each.submission.source == task.submission.source]
        assert len({[Shard(n, 4).holds(twin) for n in range(1, 5)].index(True) for twin in twins}) == 1


TEXT = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_an_endless_number_of_problem_texts_takes_limited_memory():
    problems = Problems(None, (SizeName.FULL,))
    first = ProblemText(f"{TEXT}# used all the time")
    kept = problems.read(first)
    for number in range(3 * MOST_TEXTS):
        name = problems.read(ProblemText(f"{TEXT}# {number}", f"text-{number}")).name
        assert name == f"text-{number}"
        assert problems.read(first) is kept  # Used again, so never dropped.
    assert len(problems._texts) == MOST_TEXTS


def test_the_length_of_stored_problem_texts_is_limited():
    recent = RecentProblems()
    texts = [ProblemText("x" * (MOST_CHARACTERS // 4), str(number)) for number in range(6)]
    reads = []
    for text in texts:
        recent.get(text, lambda text=text: reads.append(text) or text.name)
    assert len(recent) == 4
    assert recent.get(texts[-1], lambda: "read again") == "5"
    assert recent.get(texts[0], lambda: "read again") == "read again"
    huge = ProblemText("x" * (MOST_CHARACTERS + 1))
    assert recent.get(huge, lambda: "huge") == "huge"
    assert len(recent) == 0
