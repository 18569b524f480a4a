"""Explores without pytest: `cd tests/robustness && PYTHONPATH=.. python -m crash SEED PER_CALL [WORKLOAD...]`.

The last line is the number of distinct states. Exit code 1 if something is wrong.
"""

from __future__ import annotations

import sys
import time

from .explorer import Explorer, Found, Tally
from .workloads import WORKLOADS


def main(seed: str, per_call: str, *names: str) -> int:
    tally = Tally()
    for name in names or WORKLOADS:
        began = time.monotonic()
        try:
            tally.add(found := Explorer(WORKLOADS[name], int(seed), int(per_call)).explore())
        except Found as violation:
            print(violation)
            return 1
        print(f"{name}: {found}, {time.monotonic() - began:.0f} s", flush=True)
    print(tally.states)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
