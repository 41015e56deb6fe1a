"""The page of a run as a browser shows it: sorted, filtered, read; and what submissions wrote stays text."""

import threading

import pytest

from evaluator.view.live_run import LiveRun
from evaluator.view.server import ViewServer
from tests.batch import chromium

pytestmark = pytest.mark.skipif(
    chromium.chromium() is None, reason="there is no Chromium; WARPGRADE_CHROMIUM may name one"
)

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


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as running:
        yield running


@pytest.fixture
def page(run, tmp_path, browser):
    assert run("report", "run", "--html", "page.html") == 0
    with browser.tab() as opened:
        opened.open((tmp_path / "page.html").as_uri())
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


def test_a_phone_shows_every_number_of_every_table(page):
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    page.evaluate("document.querySelectorAll('.part').forEach(part => { part.open = true })")
    cells = (
        "Array.from(document.querySelectorAll('td'), cell => [cell.textContent, cell.getBoundingClientRect().right])"
    )
    beyond = [text for text, right in page.evaluate(cells) if right > 390]
    assert beyond == []


def test_a_chip_keeps_its_status_and_a_link_opens_its_submission(page):
    page.click("document.querySelector('#chips button[data-kind=wrong_result]')")
    assert page.evaluate(NAMES) == ["b"]
    page.evaluate("location.hash = 's/relu/a'")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert page.evaluate("document.getElementById('s/relu/a').querySelector('details').open") is True


def test_a_link_to_a_view_shows_the_same_rows_in_the_same_order(page, browser):
    page.type_into("filter", "r")
    for status in ("correct", "wrong_result"):
        page.click(f"document.querySelector('#chips button[data-kind={status}]')")
    page.click(heading(2))
    page.click(heading(2))
    seen = page.evaluate(NAMES)
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 3
    link = page.evaluate("location.href")
    assert link.endswith("#f/show=r&kind=correct&kind=wrong_result&sort=-submission")
    with browser.tab() as other:
        other.open(link)
        assert other.evaluate(NAMES) == seen
        assert other.evaluate("document.getElementById('filter').value") == "r"
        pressed = (
            "Array.from(document.querySelectorAll('#chips [aria-pressed=true]'), chip => chip.dataset.kind).sort()"
        )
        assert other.evaluate(pressed) == ["correct", "wrong_result"]


def test_a_hostile_fragment_is_text(page):
    page.evaluate("location.hash = 'f/show=<img src=x onerror=window.owned=1>&kind=__proto__&sort=-<b>'")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert page.evaluate("typeof window.owned") == "undefined"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate(NAMES) == []
    page.evaluate("location.hash = 'f/kind=__proto__&kind=missing'")  # statuses that this page has not
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert len(page.evaluate(NAMES)) == len(FILES)


def test_the_reference_is_beside_the_code(page):
    body = "document.getElementById('s/relu/a')"
    beside = f"{body}.querySelector('.beside')"
    page.call("Emulation.setDeviceMetricsOverride", width=1240, height=900, deviceScaleFactor=1, mobile=False)
    assert page.evaluate(f"{beside}.textContent") == ""
    page.evaluate(f"{body}.querySelector('details').open = true")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert "class Model(nn.Module)" in page.evaluate(f"{beside}.textContent")
    boxes = [page.evaluate(f"{each}.getBoundingClientRect().left") for each in (f"{body}.querySelector('pre')", beside)]
    assert boxes[0] < boxes[1]
    assert page.evaluate(f"{body}.querySelector('svg .samples.submission').getBoundingClientRect().width") > 100


def test_a_comparison_is_sorted_filtered_and_linked_to(page, hand_in, batch, command, tmp_path):
    (tmp_path / "run").rename(tmp_path / "before")
    hand_in({"relu/a.py": "# wrong now", "relu/b.py": "# right now"})
    batch()
    assert command("compare", "before", "run", "--html", "compared.html") == 0
    page.open((tmp_path / "compared.html").as_uri() + "#f/kind=broken")
    names = NAMES.replace("cells[2]", "cells[1]")
    assert page.evaluate(names) == ["a"]
    page.click("document.querySelector('#chips button[data-kind=fixed]')")
    assert sorted(page.evaluate(names)) == ["a", "b"]
    page.evaluate("document.getElementById('s/relu/a').querySelector('details').open = true")
    code = "Array.from(document.getElementById('s/relu/a').querySelectorAll('pre'), pre => pre.textContent)"
    assert page.evaluate(code) == ["# right 1", "# wrong now"]
    assert page.evaluate("typeof window.owned") == "undefined"
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.fixture
def live(run, tmp_path, browser):
    with ViewServer(LiveRun([tmp_path / "run"]), 0, print) as server, browser.tab() as opened:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            opened.open(server.address)
            opened.server = server
            yield opened
        finally:
            server.shutdown()
            thread.join()


UNTIL = "new Promise(done => { const look = () => %s ? done(true) : setTimeout(look, 50); look() })"


def test_a_live_page_takes_over_results_and_keeps_what_its_reader_chose(live, hand_in, batch):
    live.type_into("filter", "relu")
    live.click(heading(2))
    live.evaluate("document.getElementById('s/relu/b').querySelector('details').open = true")
    live.evaluate("window.same = document.getElementById('s/relu/a')")
    # Not at the end of the page: what becomes shorter there moves everything.
    live.evaluate("scrollTo(0, document.body.scrollHeight - innerHeight - 100)")
    place = "document.getElementById('s/relu/b').getBoundingClientRect().top"
    before = live.evaluate(place)
    hand_in({"relu/_first.py": "# crashing 1", "relu/b.py": "# wrong again"})
    batch()
    its_text = "document.getElementById('s/relu/b').textContent"
    assert live.evaluate(UNTIL % f"document.getElementById('s/relu/_first') && {its_text}.includes('# wrong again')")
    # The message of a crash names relu too.
    assert live.evaluate(NAMES) == ["_first", SCRIPT, "a", "b", "c"]
    assert live.evaluate("document.getElementById('shown').textContent") == f"5 of {len(FILES) + 1}"
    assert live.evaluate("document.getElementById('filter').value") == "relu"
    assert live.evaluate("document.getElementById('s/relu/a') === window.same") is True
    assert live.evaluate("document.getElementById('s/relu/b').querySelector('details').open") is True
    assert abs(live.evaluate(place) - before) <= 1  # although there is a row more above
    assert live.evaluate("document.querySelector('#chips [data-kind=runtime_error]').textContent") == "runtime_error 2"
    assert live.evaluate("typeof window.owned") == "undefined"
    assert live.evaluate("document.querySelectorAll('img, iframe, object, link').length") == 0


def test_a_live_page_says_when_its_server_has_ended(live):
    assert live.evaluate("document.getElementById('live').textContent") == "live"
    live.server.live.page = live.server.live.version = None  # every request fails
    assert live.evaluate(UNTIL % "document.getElementById('live').textContent.startsWith('not live')")


def test_a_live_page_asks_nobody_but_its_server(live):
    live.evaluate("fetch('https://example.com/').catch(() => 0)")
    live.evaluate("new Promise(done => setTimeout(done, 300))")
    said = [event["params"]["entry"]["text"] for event in live.events if event["method"] == "Log.entryAdded"]
    assert any("connect-src 'self'" in text for text in said)
