"""Fuzzes without pytest: `cd tests && python -m fuzz SEED COUNT [FIRST]`. One finding of each kind is told, and kept.

The last line is the number of cases and of commands. Exit code 1 if something was found. Run `python -m fuzz SEED 1 N`
to play the case N alone: its files stay in the folder that is named at the end.
"""

from __future__ import annotations

import collections
import shutil
import sys
import tempfile
import time
from pathlib import Path

from waits import NOBODY_SAVES

from satchel.workspace import settling

from . import bases
from .play import Player


def main(seed: str, count: str, first: str = "0") -> int:
    settling.WAITS = NOBODY_SAVES
    folder = Path(tempfile.mkdtemp(prefix="satchel-fuzz-"))
    player, kinds, began = (
        Player(int(seed), folder / "case", bases.build()),
        collections.Counter[str](),
        time.monotonic(),
    )
    for number in range(int(first), int(first) + int(count)):
        for finding in player.play(number):
            kinds[finding.kind] += 1
            if kinds[finding.kind] == 1:
                shutil.copytree(
                    folder / "case", folder / f"case-{number}", symlinks=True, dirs_exist_ok=True, ignore=_no_pipes
                )
                print(finding, flush=True)
    for kind, times in kinds.most_common():
        print(f"{times:>6}  {kind}")
    seconds = time.monotonic() - began
    print(f"{count} cases of seed {seed}, {player.commands} commands, {seconds:.0f} s; kept in {folder}")
    return 1 if kinds else 0


def _no_pipes(folder: str, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if Path(folder, name).is_fifo()
        or (not Path(folder, name).is_symlink() and Path(folder, name).stat().st_size > 1 << 30)
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
