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
from xml.etree import ElementTree

import pytest

from evaluator.batch.runs import results
from evaluator.batch.runs.run_folder import manifest_for
from evaluator.commands import main as cli
from evaluator.errors import UsageError
from evaluator.files.card_files import read_card
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, GradeMode, L2Rule, ValuesRule, WeightsRule
from tests.batch.test_session import batch  # noqa: F401 - a fixture

HOSTILE = "<script>alert(1)</script>"
FILES = {
    "relu/a.py": "# right",
    "relu/b.py": "# wrong",
    "relu/d.py": "# lost 3",
    f"softmax/{HOSTILE.replace('/', '-')}.py": f"# crashing {HOSTILE}",
}


@pytest.fixture
def run(batch, hand_in, capsys):  # noqa: F811
    hand_in(FILES)
    batch()

    def command(*arguments):
        code = cli.run(list(map(str, arguments)))
        command.out, command.err = capsys.readouterr()
        return code

    return command


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


def test_every_submission_is_on_the_page_with_its_code(run, tmp_path):
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<summary>code, findings and samples</summary>") == 4
    for line in ("# right", "# wrong", "# lost 3", "hello, world"):
        assert line in text


def test_the_result_comes_first_then_failures_then_submissions(run, tmp_path):
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    marks = ["4 submissions to 2 problems", "<h2>Not correct</h2>", 'id="submissions"', 'id="part-settings"']
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert text.count("<h3>By problem</h3>") == 0
    assert text.count('id="best"') == 1


def test_a_row_of_the_page_has_the_message_of_its_failure(run, tmp_path):
    message = read_card(tmp_path / "run/cards/relu/b.json").reason.message
    run("report", "run", "--html", "page.html")
    row = re.search(r'<tbody id="s/relu/b".*?</tr>', (tmp_path / "page.html").read_text(), re.DOTALL)[0]
    assert f'<td class="reason">C405 {message}' in html.unescape(row)


def test_samples_are_in_the_order_of_their_numbers(batch, hand_in, tmp_path):  # noqa: F811
    hand_in({f"relu/sample_{number}.py": f"# right {number}" for number in (1, 2, 10, 11)})
    batch()
    assert cli.run(["report", "run", "--html", "page.html", "--submissions", "rows.csv"]) == 0
    names = [f"sample_{number}" for number in (1, 2, 10, 11)]
    assert re.findall(r'<tbody id="s/relu/(\w+)"', (tmp_path / "page.html").read_text()) == names
    assert [row["name"] for row in csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())] == names


def test_details_beyond_the_limit_are_left_out_and_counted(run, tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.report.page.writer.DETAILS_BYTES", 10)
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Code and findings of 4 submissions are omitted" in text
    assert text.count("<summary>code, findings and samples</summary>") == 0


def test_junit(run, tmp_path):
    assert run("report", "run", "--junit", "out.xml") == 0
    top = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (top.get("tests"), top.get("failures"), top.get("errors"), top.get("skipped")) == ("4", "2", "1", "0")
    cases = {case.get("name"): [child.tag for child in case] for case in top.iter("testcase")}
    assert cases == {"a": ["properties"], "b": ["failure"], "d": ["error"], HOSTILE.replace("/", "-"): ["failure"]}


def test_what_has_no_card_counts(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").unlink()
    run("report", "run", "--json")
    total = json.loads(run.out)["devices"][0]["total"]
    assert total["samples"] == 4
    assert total["statuses"] == {"missing": 1, "wrong_result": 1, "infra_error": 1, "runtime_error": 1}
    assert total["correct"]["value"] == 0


def test_a_card_that_is_broken_is_named_and_counts_as_missing(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").write_text("{")
    assert run("report", "run", "--json") == 3
    assert "a.json is not a scorecard" in run.err
    assert json.loads(run.out)["devices"][0]["total"]["statuses"]["missing"] == 1


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
    listed = run.out.partition("Not correct\n")[2].splitlines()
    assert listed[0].startswith(f"✗ relu/b  wrong_result  {codes['b']} call 3: output differs")
    assert listed[2].startswith(f"✗ relu/d  infra_error  {codes['d']} ")
    assert " ".join(" ".join(listed).partition("✗ relu/a ")[2].split()) == (
        "missing no scorecard; the same `warpgrade batch` grades the submission"
    )
    assert sum(line.startswith("✗") for line in listed) == 4
    run("report", "run", "--markdown")
    listed = run.out.partition("\n## Not correct\n\n")[2].splitlines()
    assert listed[:2] == ["| submission | problem | status | reason |", "|---|---|---|---|"]
    assert any(
        line.startswith(f"| `b` | `relu` | wrong\\_result | `{codes['b']} call 3: output differs") for line in listed
    )
    assert "more" not in run.out


def test_where_all_are_correct_nothing_is_listed(batch, hand_in, capsys):  # noqa: F811
    hand_in({"relu/a.py": "# right"})
    batch()
    for form in ([], ["--markdown"]):
        assert cli.run(["report", "run", *form]) == 0
        assert "Not correct" not in capsys.readouterr().out


def test_a_long_list_of_what_is_not_correct_is_cut(batch, hand_in, capsys):  # noqa: F811
    hand_in({f"relu/{number:02}.py": f"# wrong {number}" for number in range(23)})
    batch()
    for form in ([], ["--markdown"]):
        cli.run(["report", "run", *form])
        listed = capsys.readouterr().out.partition("Not correct")[2]
        assert len(re.findall(r"(?m)^\W*(?:relu/)?\d\d\b.*wrong", listed)) == 20
        assert listed.strip().endswith("and 3 more; --html FILE lists all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "run", "--json", "--csv"], "choose one format"),
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


def test_compare(run, tmp_path):
    assert run("compare", "run", "run", "--fail-on", "status", "--fail-on", "correct:-1%") == 0
    assert "4 submissions in both runs" in run.out
    (tmp_path / "run").rename(tmp_path / "before")
    (tmp_path / "submissions/relu/a.py").write_text("# wrong now")
    cli.run(["batch", "submissions", "--run", "run", "--device", "cpu"])
    assert run("compare", "before", "run", "--fail-on", "status", "--json") == 1
    assert json.loads(run.out)["failed"] == ["correct in RUN_A and not in RUN_B: 1"]
    assert "failed: correct in RUN_A and not in RUN_B: 1" in run.err
    cli.run(["batch", "submissions", "--run", "other", "--device", "emulated"])
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


def test_a_manifest_from_elsewhere_publishes_no_other_file(run, tmp_path):
    other = tmp_path / "private" / "relu"
    other.mkdir(parents=True)
    (other / "problem.toml").write_text('title = "x"\nlevel = 1\n')
    (other / "reference.py").write_text(
        "SECRET = 1\nclass Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
    )
    manifest = tmp_path / "run/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"problems": str(other.parent)}))
    run("report", "run", "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "SECRET" not in text
    assert "<summary>reference</summary>" not in text


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


def test_a_run_of_unreadable_cards_says_so_on_its_page(run, tmp_path):
    (tmp_path / "run/cards/relu/a.json").write_text("{")
    assert run("report", "run", "--html", "page.html") == 3
    assert "1 card could not be read or was rejected, and counts as missing." in (tmp_path / "page.html").read_text()


def test_a_comparison_has_a_page(run, tmp_path):
    assert run("compare", "run", "run", "--html", "page.html") == 0
    assert (tmp_path / "page.html").read_text().count('data-kind="same"') == 5  # four rows, and a chip
    assert run("compare", "run", "run", "--html", "no/such/folder.html") == 2
    assert "cannot write" in run.err
