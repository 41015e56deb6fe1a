"""Show on one screen what this machine can and cannot do."""

from rich.console import Console

from evaluator.doctor import Diagnosis, Line
from evaluator.report.sheet import Sheet, styled


def render_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print `diagnosis` on `console`: what can be graded first, then everything that was looked at."""
    sheet = Sheet(console)
    if diagnosis.ready:
        mark, style = sheet.symbols.right, "bold green"
        verdict = f"this machine can grade on {' and '.join(device.value for device in diagnosis.ready)}"
    else:
        mark, style = sheet.symbols.wrong, "bold red"
        verdict = "this machine cannot grade yet: mend what is missing below"
    sheet.paragraph(styled(mark, style), styled(verdict, "bold"))
    sheet.blank()
    for line in diagnosis.lines:
        _show(sheet, line)
    sheet.print()


def _show(sheet: Sheet, line: Line) -> None:
    word = styled("ok" if line.ok else "missing", "green" if line.ok else "yellow")
    word.pad_right(9 - word.cell_len)
    sheet.row(line.name, word.append_text(sheet.say(line.found, 200)))
    if line.fix:
        sheet.row("", styled(f"{sheet.symbols.arrow} ", "dim").append_text(sheet.say(line.fix, 240, "dim")))
