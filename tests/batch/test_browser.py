"""The page of a run as a browser shows it: sorted, filtered, read; and what submissions wrote stays text."""

import pytest

from evaluator.commands import main as cli
from tests.batch.chromium import chromium, tab
from tests.batch.test_session import batch  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no Chromium; WARPGRADE_CHROMIUM may name one")

SCRIPT = "<script>window.owned = 1; alert(1)<-script>"
IMAGE = '<img src=x onerror="window.owned = 1">'
FILES = {
    "relu/a.py": "# right 1",
    "relu/b.py": f"# wrong </pre>{SCRIPT.replace('-', '/')}{IMAGE}",
    "relu/c.py": "# uncompiled",
    f"softmax/{SCRIPT}.py": f"# crashing {IMAGE}",
    f"softmax/{IMAGE}.py": "# right 2",
}
ROWS = "Array.from(document.querySelectorAll('#submissions > tbody'))"
NAMES = f"{ROWS}.filter(body => !body.hidden).map(body => body.rows[0].cells[2].textContent)"
STATUSES = f"{ROWS}.filter(body => !body.hidden).map(body => body.rows[0].cells[3].textContent)"


def heading(column):
    return f"document.querySelector('#submissions').tHead.rows[0].cells[{column}]"


@pytest.fixture
def page(batch, hand_in, tmp_path):  # noqa: F811
    hand_in(FILES)
    batch()
    assert cli.run(["report", "run", "--html", "page.html"]) == 0
    with tab() as opened:
        opened.open(tmp_path / "page.html")
        yield opened


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(page):
    assert len(page.evaluate(NAMES)) == len(FILES)
    page.click(heading(3))
    statuses = page.evaluate(STATUSES)
    assert statuses == sorted(statuses)
    assert len(set(statuses)) == 4
    page.click(heading(3))
    assert page.evaluate(STATUSES) == sorted(statuses, reverse=True)
    page.click(heading(5))
    page.click(heading(5))
    assert page.evaluate(STATUSES)[:2] == ["correct", "correct"]  # those with a speedup, as numbers


def test_words_narrow_the_list(page):
    page.type_into("filter", "RELU wrong")
    assert page.evaluate(NAMES) == ["b"]
    assert page.evaluate("document.getElementById('shown').textContent") == f"1 of {len(FILES)}"
    page.type_into("filter", " nothing")
    assert page.evaluate(NAMES) == []


def test_a_submission_is_read(page):
    body = f"{ROWS}.find(body => body.rows[0].cells[2].textContent === 'b')"
    code = f"{body}.querySelector('pre')"
    assert page.evaluate(f"{code}.checkVisibility()") is False
    page.click(f"{body}.querySelector('summary')")
    assert page.evaluate(f"{code}.checkVisibility()") is True
    assert page.evaluate(f"{code}.textContent") == FILES["relu/b.py"]
    assert "C405" in page.evaluate(f"{body}.querySelector('details').textContent")


def test_what_a_submission_wrote_neither_runs_nor_loads(page):
    assert page.evaluate("typeof window.owned") == "undefined"
    assert set(page.evaluate(NAMES)) >= {SCRIPT, IMAGE}
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.querySelectorAll('img, iframe, object, link').length") == 0
    methods = [event["method"] for event in page.events]
    assert "Page.javascriptDialogOpening" not in methods
    asked = [
        event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert [url.rpartition("/")[2] for url in asked] == ["page.html"]


def test_the_content_policy_would_stop_what_got_through(page):
    """As if the escaping had failed: an element made of a submission's text runs nothing, and loads nothing."""
    page.evaluate(f"document.body.insertAdjacentHTML('beforeend', {IMAGE!r})")
    page.evaluate(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.owned = 1';"
        " document.body.append(script) })()"
    )
    page.evaluate("new Promise(done => setTimeout(done, 300))")
    assert page.evaluate("typeof window.owned") == "undefined"
    said = [event["params"]["entry"]["text"] for event in page.events if event["method"] == "Log.entryAdded"]
    assert sum("Content Security Policy" in text for text in said) >= 2


def test_a_phone_shows_the_page_without_scrolling_sideways(page):
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    page.evaluate("document.querySelector('#submissions pre').textContent = 'x'.repeat(2000)")
    assert page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]") == [390, 390]


def test_a_chip_keeps_its_status_and_a_link_opens_its_submission(page):
    page.click("document.querySelector('#chips button[data-status=wrong_result]')")
    assert page.evaluate(NAMES) == ["b"]
    page.evaluate("location.hash = 's/relu/a'")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert page.evaluate("document.getElementById('s/relu/a').querySelector('details').open") is True
