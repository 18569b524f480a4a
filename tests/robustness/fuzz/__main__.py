"""Fuzzes without pytest: `cd tests/robustness && PYTHONPATH=.. python -m fuzz SEED COUNT [FIRST]`.

One finding of each kind is told, and kept. The last line is the number of cases and of commands. Exit code 1 if
something was found. Run `python -m fuzz SEED 1 N` to play the case N alone: its files stay in the folder that is named
at the end.
"""

from __future__ import annotations

import collections
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import bases
from .play import Player, remembering


def main(seed: str, count: str, first: str = "0") -> int:
    folder = Path(tempfile.mkdtemp(prefix="satchel-fuzz-"))
    player, began = Player(int(seed), folder / "case", bases.build()), time.monotonic()
    kinds: collections.Counter[str] = collections.Counter()
    with remembering():
        for done, number in enumerate(range(int(first), int(first) + int(count)), 1):
            for finding in player.play(number):
                kinds[finding.kind] += 1
                if kinds[finding.kind] == 1:
                    kept = folder / f"case-{number}"
                    shutil.copytree(folder / "case", kept, symlinks=True, dirs_exist_ok=True, ignore=_special)
                    print(finding, flush=True)
            if done % 1000 == 0:
                print(f"{done} cases, {time.monotonic() - began:.0f} s", flush=True)
    for kind, times in kinds.most_common():
        print(f"{times:>6}  {kind}")
    seconds = time.monotonic() - began
    print(f"{count} cases of seed {seed}, {player.commands} commands, {seconds:.0f} s; kept in {folder}")
    return 1 if kinds else 0


def _special(folder: str, names: list[str]) -> list[str]:
    """What can't be copied, or would fill the disk."""
    paths = [Path(folder, name) for name in names if not Path(folder, name).is_symlink()]
    return [each.name for each in paths if each.is_fifo() or each.stat().st_size > 1 << 30]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
