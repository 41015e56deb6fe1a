"""Pictures of the terminal in docs/: real grades on the emulated device, in a terminal of 80 columns.

    python -m benchmarks.pages.terminal_pictures [FOLDER]    pictures in FOLDER, by default docs/

rich draws the output of each command as SVG.
"""

import argparse
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

TOP = Path(__file__).resolve().parents[2]
SOLUTION = "cuda_vectorised.py"
COLUMNS, LINES = 80, 50
RIGHT, WRONG = "fast.py", "answer.py"
"""Names of the submissions in the pictures."""
CONDITION, TOO_FAR = "i < vectors;", "i <= vectors;"
"""Condition of the solution's loop, and of the wrong submission's."""


def terminal_text(command: list[str], folder: Path) -> str:
    """Return what `command` writes to a terminal, with its control sequences."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "WARPGRADE_READY": "0", "WARPGRADE_NO_CONFIG": "1"}
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    ):
        os.close(theirs)
        written = io.BytesIO()
        while part := _read(ours):
            written.write(part)
    os.close(ours)
    return written.getvalue().decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux, after the last process has closed the terminal.
        return b""


def picture(words: list[str], folder: Path) -> str:
    """Return the picture of a terminal after a command."""
    said = terminal_text([sys.executable, str(TOP / "cli.py"), *words], folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ warpgrade {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(said))
    return console.export_svg(title="warpgrade")


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=TOP / "docs")
    folder = parser.parse_args().folder
    source = (TOP / "solutions" / "relu" / SOLUTION).read_text()
    assert source.count(CONDITION) == 1, f"{SOLUTION} has no condition {CONDITION}"
    with tempfile.TemporaryDirectory() as place:
        Path(place, RIGHT).write_text(source)
        Path(place, WRONG).write_text(source.replace(CONDITION, TOO_FAR))
        for name, words in {
            "terminal_correct.svg": ["grade", "relu", RIGHT, "--device", "emulated"],
            "terminal_wrong.svg": ["grade", "relu", WRONG, "--device", "emulated"],
        }.items():
            text = picture(words, Path(place))
            (folder / name).write_text(text, encoding="utf-8")
            print(f"{folder / name}: {len(text) // 1000} kB")


if __name__ == "__main__":
    main()
