"""Regular expressions of strangers, tried in another process, which is killed if one takes too long.

A pattern like `^(a+)+$` takes years for a text of forty characters, and Python can't be told to stop.
"""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import time

_CHILD = """
import json, re, sys
for line in sys.stdin:
    pattern, text = json.loads(line)
    try:
        found = re.search(pattern, text) is not None
    except Exception as error:
        found = str(error)
    print(json.dumps(found), flush=True)
"""


class TooLong(Exception):
    """All searches together took longer than allowed."""


class Matcher:
    """Searches until the time `until` (monotonic). Its process is started by the first search; `close` ends it."""

    def __init__(self, until: float):
        self._until = until
        self._process: subprocess.Popen[str] | None = None

    def search(self, pattern: str, text: str) -> bool:
        """re.error for an invalid pattern; TooLong."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{json.dumps([pattern, text])}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], max(0.0, self._until - time.monotonic()))[0]:
            raise TooLong("its regular expressions take too long")
        found = json.loads(process.stdout.readline())
        if isinstance(found, str):
            raise re.error(found)
        return bool(found)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
