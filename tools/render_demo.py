"""Render docs/crash-and-resume.svg from a real run of the demo. Run it where satchel is installed."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "crash-and-resume.svg"
WIDTH = 108
SHOWN = ("Start it", "What is left in the folder", "Resume it", "What was not done again")
_STYLES = [
    (re.compile(r"^\$ .*"), "bold"),
    (re.compile(r"^In the middle .*|kill -9 \d+"), "bold red"),
    (re.compile(r"^Not done again.*|^completed"), "bold green"),
    (re.compile(r"\[/\].*|^begin"), "yellow"),
    (re.compile(r"\[x\]|^end"), "green"),
    (re.compile(r"^(found|done) .*"), "cyan"),
    (re.compile(r"^(---|(?:run_id|scope|no|step|args|n|attempt|at|characters|crc|call|format): .*|<!-- .*)$"), "dim"),
]


def main() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "demo.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in shown(done.stdout):
        console.print(styled(line), overflow="fold", soft_wrap=False)
    picture = console.export_svg(title="a run is a folder: killed in mid-answer, and resumed")
    # Without the fonts of a public server, so that no server learns who reads the README.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL))


def shown(told: str) -> list[str]:
    """The sections in the picture, without details."""
    lines: list[str] = []
    for section in re.split(r"^(?=\d+\. )", told, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if not title.split(". ", 1)[1].startswith(SHOWN):
            continue
        body = body.split("\n$ satchel status", 1)[0]
        kept = [line.removeprefix("    ") for line in body.splitlines()]
        lines += ["", *(line for line in kept if line.strip() or (lines and lines[-1].strip()))]
    return [line for at, line in enumerate(lines) if line.strip() or (at and lines[at - 1].strip())]


def styled(line: str) -> Text:
    text = Text(line)
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


if __name__ == "__main__":
    main()
