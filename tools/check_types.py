"""Have mypy and pyright check the public types: they must report each line of tests/typing/wrong.py with `# wrong`, and
nothing else there or in right.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "tests/typing"
SOURCES = ROOT / "src"
CACHE = ROOT / ".mypy_cache/strict"
"""The samples use it, too: most of the time goes into Satchel itself."""


def main() -> None:
    expected = {
        (path.name, number)
        for path in FILES.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "  # wrong" in line
    }
    failed = False
    for checker, found in (("mypy", of_mypy()), ("pyright", of_pyright())):
        for name, number in sorted(expected - found.keys()):
            print(f"{checker} does not report tests/typing/{name}:{number}")
        for name, number in sorted(found.keys() - expected):
            print(f"{checker} reports tests/typing/{name}:{number}: {found[name, number]}")
        failed |= found.keys() != expected
    if failed:
        sys.exit(1)
    print(f"mypy and pyright report all {len(expected)} wrong lines, and no others")


def of_mypy() -> dict[tuple[str, int], str]:
    options = ["--config-file=", "--strict", "--no-error-summary", f"--cache-dir={CACHE}"]
    command = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"]
    done = subprocess.run(
        command, cwd=FILES, env={**os.environ, "MYPYPATH": str(SOURCES)}, capture_output=True, text=True
    )
    lines = [re.fullmatch(r"([^:]+):(\d+): error: (.*)", line) for line in done.stdout.splitlines()]
    if done.returncode > 1 or done.stderr:
        sys.exit(done.stdout + done.stderr)
    return {(line[1], int(line[2])): line[3] for line in lines if line}


def of_pyright() -> dict[tuple[str, int], str]:
    settings = FILES / "pyrightconfig.json"
    settings.write_text(json.dumps({"include": ["right.py", "wrong.py"], "extraPaths": [str(SOURCES)]}))
    try:
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run([*command, "--project", str(settings)], capture_output=True, text=True)
    finally:
        settings.unlink()
    if done.returncode > 1 or not done.stdout:
        sys.exit(done.stdout + done.stderr)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2, done.stdout
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in report["generalDiagnostics"]
    }


if __name__ == "__main__":
    main()
