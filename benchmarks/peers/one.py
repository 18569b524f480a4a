"""`python -m benchmarks.peers.one SUBJECT FOLDER WARM COUNT [KILL_AT]`: measures one subject once, in a process."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from .pairing import Pairing


def main() -> None:
    subject, folder, *numbers = sys.argv[1:]
    pairing = Pairing(Path(folder), *map(int, numbers))
    module, _, function = subject.partition(".")
    getattr(importlib.import_module(f".with_{module}", __package__), function)(Path(folder), pairing)
    print(json.dumps(pairing.found()))


if __name__ == "__main__":
    main()
