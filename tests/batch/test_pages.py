"""What `report` and `compare` write, of hostile submissions too."""

import base64
import contextlib
import csv
import hashlib
import html
import html.parser
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from evaluator.batch.runs import results
from evaluator.batch.runs.run_folder import manifest_for
from evaluator.errors import UsageError
from evaluator.files.card_files import read_card
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, GradeMode, L2Rule, ValuesRule, WeightsRule

HOSTILE = "<script>alert(1)</script>"
FILES = {
    "relu/a.py": "# right",
    "relu/b.py": "# wrong",
    "relu/d.py": "# lost 3",
    f"softmax/{HOSTILE.replace('/', '-')}.py": f"# crashing {HOSTILE}",
}


class Page(html.parser.HTMLParser):
    """Collects what a browser would run, load or follow, and the text that it would show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.held = [], [], {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.lasttag in self.held:
            self.held[self.lasttag].append(data)
        self.text.append(data)


def test_a_page_is_one_file_and_a_hostile_name_is_text(run, tmp_path):
    assert run("report", "run", "--html", "page.html") == 0
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert HOSTILE in "".join(page.text)
    assert HOSTILE not in text
    assert "warpgrade batch SUBMISSIONS --run RUN --device cpu" in "".join(page.text)
    for _, attributes in page.tags:
        assert not {"src", "style", "action"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        content = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_a_page_has_the_result_the_failures_and_the_code_of_all_submissions(run, tmp_path):
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<summary>code, findings and samples</summary>") == 4
    for line in ("# right", "# wrong", "# lost 3", "hello, world"):
        assert line in text
    marks = ["4 submissions to 2 problems", "<h2>Not correct</h2>", 'id="submissions"', 'id="part-settings"']
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert text.count("<h3>By problem</h3>") == 0
    assert text.count('id="best"') == 1
    message = read_card(tmp_path / "run/cards/relu/b.json").reason.message
    row = re.search(r'<tbody id="s/relu/b".*?</tr>', text, re.DOTALL)[0]
    assert f'<td class="reason">C405 {message}' in html.unescape(row)


def test_samples_are_in_the_order_of_their_numbers(batch, hand_in, command, tmp_path):
    hand_in({f"relu/sample_{number}.py": f"# right {number}" for number in (1, 2, 10, 11)})
    batch()
    assert command("report", "run", "--html", "page.html", "--submissions", "rows.csv") == 0
    assert command("report", "run", "--markdown") == 0
    assert "Not correct" not in command.out
    names = [f"sample_{number}" for number in (1, 2, 10, 11)]
    assert re.findall(r'<tbody id="s/relu/(\w+)"', (tmp_path / "page.html").read_text()) == names
    assert [row["name"] for row in csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())] == names


def test_what_has_no_card_counts(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").unlink()
    run("report", "run", "--json")
    total = json.loads(run.out)["devices"][0]["total"]
    assert total["samples"] == 4
    assert total["statuses"] == {"missing": 1, "wrong_result": 1, "infra_error": 1, "runtime_error": 1}
    assert total["correct"]["value"] == 0


def test_a_card_that_is_broken_is_named_and_counts_as_missing(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").write_text("{")
    assert run("report", "run", "--json", "--html", "page.html") == 3
    assert "a.json is not a scorecard" in run.err
    assert json.loads(run.out)["devices"][0]["total"]["statuses"]["missing"] == 1
    assert "1 card could not be read or was rejected, and counts as missing." in (tmp_path / "page.html").read_text()


def test_the_forms_say_the_same(run):
    run("report", "run", "--json")
    section = json.loads(run.out)["devices"][0]
    run("report", "run", "--csv")
    rows = {(row["group"], row["name"]): row for row in csv.DictReader(io.StringIO(run.out))}
    for (group, name), numbers in {
        ("total", ""): section["total"],
        ("level", "1"): section["levels"]["1"],
        ("problem", "relu"): section["problems"]["relu"],
    }.items():
        row = rows[group, name]
        assert int(row["samples"]) == numbers["samples"]
        assert float(row["correct"]) == numbers["correct"]["value"]
        assert float(row["fast_1.5_high"]) == numbers["fast"]["1.5"]["high"]
        assert row["pass@1"] == str(numbers["pass_at"]["1"]["value"])
    run("report", "run")
    assert "cpu (a processor): 4 submissions to 2 problems" in run.out
    assert re.search(r"correct \(fast_0\)\s+25.0 %", run.out)
    run("report", "run", "--markdown")
    assert "| correct (fast_0) | 25.0 % |" in run.out


def test_what_is_not_correct_is_listed(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").unlink()
    codes = {name: read_card(tmp_path / f"run/cards/relu/{name}.json").reason.code for name in "bd"}
    run("report", "run")
    wrong, lost, _, missing = " ".join(run.out.partition("Not correct\n")[2].split()).split("✗ ")[1:]
    assert wrong.startswith(f"relu/b wrong_result {codes['b']} call 3: output differs")
    assert lost.startswith(f"relu/d infra_error {codes['d']} ")
    assert missing == "relu/a missing no scorecard; the same `warpgrade batch` grades the submission"
    run("report", "run", "--markdown")
    listed = run.out.partition("\n## Not correct\n\n")[2].splitlines()
    assert listed[:2] == ["| submission | problem | status | reason |", "|---|---|---|---|"]
    assert any(
        line.startswith(f"| `b` | `relu` | wrong\\_result | `{codes['b']} call 3: output differs") for line in listed
    )
    assert "more" not in run.out


def test_a_long_list_of_what_is_not_correct_is_cut(batch, hand_in, command):
    hand_in({f"relu/{number:02}.py": f"# wrong {number}" for number in range(23)})
    batch()
    for form in ([], ["--markdown"]):
        command("report", "run", *form)
        listed = command.out.partition("Not correct")[2]
        assert len(re.findall(r"(?m)^\W*(?:relu/)?\d\d\b.*wrong", listed)) == 20
        assert listed.strip().endswith("and 3 more; --html FILE lists all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "run", "--json", "--csv"], "choose one format"),
        (["report", "run", "--json", "--output-format", "concise"], "choose one format"),
        (["report", "run", "--csv", "--output-format", "github"], "choose one format"),
        (["report", "submissions"], "submissions is not a run folder: it has no manifest.json"),
        (["report", "run", "run"], "a run is named twice"),
        (["report", "run", "--html", "no/such/folder.html"], "cannot write"),
        (["compare", "run", "run", "--fail-on", "speed"], "is not a rule for --fail-on"),
        (["compare", "run", "submissions"], "is not a run folder"),
    ],
)
def test_mistakes_are_told(run, arguments, message):
    assert run(*arguments) == 2
    assert message in run.err


def test_compare(run, tmp_path, worker):
    assert run("compare", "run", "run", "--fail-on", "status", "--fail-on", "correct:-1%") == 0
    assert "4 submissions in both runs" in run.out
    (tmp_path / "run").rename(tmp_path / "before")
    (tmp_path / "submissions/relu/a.py").write_text("# wrong now")
    run("batch", "submissions", "--run", "run", "--device", "cpu")
    assert run("compare", "before", "run", "--fail-on", "status", "--json") == 1
    assert json.loads(run.out)["failed"] == ["correct in RUN_A and not in RUN_B: 1"]
    assert "failed: correct in RUN_A and not in RUN_B: 1" in run.err
    run("batch", "submissions", "--run", "other", "--device", "emulated")
    assert run("compare", "before", "other") == 2
    assert "from different devices" in run.err


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"l2": L2Rule.WARM}, {"l2": L2Rule.WARM}, None),
        ({"l2": L2Rule.WARM}, {}, "the runs used different --l2: the problem's setting and warm"),
        ({"weights": WeightsRule.FROZEN}, {}, "the runs used different --weights: frozen and the problem's setting"),
        ({"values": ValuesRule.OWN}, {}, "the runs used different --values: all and own"),
        ({"mode": GradeMode.CHECK}, {}, "the runs used different --mode: check and full"),
    ],
)
def test_runs_of_different_rules_are_not_one(before, after, told):
    manifests = [manifest_for(GradeOptions(DeviceKind.CUDA, **rules), "submissions") for rules in (before, after)]
    runs = [results.Results(Path("run"), manifest, [], []) for manifest in manifests]
    with contextlib.nullcontext() if told is None else pytest.raises(UsageError, match=told) as raised:
        results.compare_results(*runs)
    assert told is None or "--fresh" in raised.value.hint


def test_a_page_has_the_references_of_graded_problems_alone(run, tmp_path):
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<summary>reference</summary>") == 2
    for line in (tmp_path / "run/plan.jsonl").read_text().splitlines():
        if '"softmax"' in line:
            changed = json.loads(line) | {"problem_sha256": "0" * 64}
            path = tmp_path / "run/plan.jsonl"
            path.write_text(path.read_text().replace(line, json.dumps(changed)))
    run("report", "run", "--html", "page.html")
    assert (tmp_path / "page.html").read_text().count("<summary>reference</summary>") == 1


def test_references_come_only_from_a_folder_that_the_user_names(run, tmp_path):
    """A run folder may come from another person: the path in its manifest is not followed."""
    own = tmp_path / "own"
    for name in ("relu", "softmax"):
        shutil.copytree(Path(__file__).parents[2] / "problems" / name, own / name)
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"problems": str(own)}))
    assert run("report", "run", "--html", "page.html") == 0
    assert "<summary>reference</summary>" not in (tmp_path / "page.html").read_text()
    assert "name the folder of the run's problems with --problems" in run.err
    assert run("report", "run", "--html", "page.html", "--problems", own) == 0
    assert (tmp_path / "page.html").read_text().count("<summary>reference</summary>") == 2
    assert "--problems" not in run.err


def test_a_comparison_has_a_page(run, tmp_path):
    assert run("compare", "run", "run", "--html", "page.html") == 0
    assert (tmp_path / "page.html").read_text().count('data-kind="same"') == 5  # four rows, and a chip
    assert run("compare", "run", "run", "--html", "no/such/folder.html") == 2
    assert "cannot write" in run.err
