"""This machine as text: usable devices, missing parts, and prepared artefacts."""

from rich.console import Console
from rich.text import Text

from evaluator.compile.warm_up import ArtefactReport, ArtefactState, Preparations
from evaluator.doctor.diagnosis import Diagnosis, PreparedDevice
from evaluator.report.layout.sheet import Sheet, styled
from evaluator.text import duration

_WORD = 9  # width of the word before a row's text
_SHOWN_S = 0.1
_STYLES = {ArtefactState.MADE: "green", ArtefactState.THERE: "green", ArtefactState.FAILED: "yellow"}


def render_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print `diagnosis` on `console`: the usable devices first, then every check."""
    sheet = Sheet(console)
    if diagnosis.ready:
        mark, style = sheet.symbols.right, "bold green"
        verb = "has the parts to grade" if diagnosis.untried else "can grade"
        verdict = f"this machine {verb} on {' and '.join(device.value for device in diagnosis.ready)}"
    else:
        mark, style = sheet.symbols.wrong, "bold red"
        verdict = "this machine cannot grade yet: install what is missing below"
    sheet.paragraph(styled(mark, style), styled(verdict, "bold"))
    sheet.blank()
    for line in diagnosis.lines:
        _show(sheet, line.name, ("ok", "green") if line.ok else ("missing", "yellow"), line.found, line.fix)
    for number, prepared in enumerate(diagnosis.prepared):
        _show_prepared(sheet, prepared, "" if number else "prepared")
    if not all(prepared.ok for prepared in diagnosis.prepared):
        sheet.row("", styled(f"{sheet.symbols.arrow} warpgrade doctor --prepare", "dim"))
    if diagnosis.untried:
        devices = " and ".join(device.value for device in diagnosis.untried)
        sheet.row("not tried", sheet.say(f"a grade on {devices}"))
        sheet.row("", styled(f"{sheet.symbols.arrow} warpgrade doctor --deep", "dim"))
    for number, language in enumerate(diagnosis.languages):
        devices = ", ".join(device.value for device in language.runs_on)
        found = f"{language.title}: {language.found} ({devices})"
        state = ("ok", "green") if language.ok else ("no", "")
        _show(sheet, "" if number else "languages", state, found, language.fix)
    sheet.print()


def render_preparations(preparations: Preparations, console: Console) -> None:
    """Print the result for each part: built, already present, or failed with the reason."""
    sheet = Sheet(console)
    device = None
    for part in preparations.parts:
        sheet.row("" if part.device is device else part.device.value, _part(sheet, part))
        device = part.device
    sheet.row("folder", sheet.say(preparations.folder))
    sheet.print()


def _show(sheet: Sheet, label: str, state: tuple[str, str], found: str, fix: str) -> None:
    """Add a row with a word and its style, and a row with the remedy, if any."""
    sheet.row(label, _status_word(*state).append_text(sheet.say(found, 200)))
    if fix:
        sheet.row("", styled(f"{sheet.symbols.arrow} ", "dim").append_text(sheet.say(fix, 320, "dim")))


def _show_prepared(sheet: Sheet, prepared: PreparedDevice, label: str) -> None:
    word = _status_word(prepared.device.value, "")
    if prepared.ok:
        sheet.row(label, word.append_text(styled("yes", "green")))
    else:
        sheet.row(label, word.append_text(styled(f"not yet: {', '.join(prepared.missing)}", "yellow")))


def _part(sheet: Sheet, part: ArtefactReport) -> Text:
    row = _status_word(part.outcome.value, _STYLES[part.outcome]).append_text(sheet.say(part.name))
    match part.outcome:
        case ArtefactState.MADE:
            # A part built along with another part has no own time.
            return row.append(f" in {duration(part.wall_s * 1e3)}") if part.wall_s >= _SHOWN_S else row
        case ArtefactState.FAILED:
            return row.append(": ").append_text(sheet.say(part.why, 300))
        case ArtefactState.THERE:
            return row


def _status_word(text: str, style: str) -> Text:
    word = styled(text, style)
    word.pad_right(max(1, _WORD - word.cell_len))
    return word
