"""A program that is killed at any moment: it holds a workspace that another one holds, too, does random calls, and
writes down each before it begins and what it has returned."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import satchel
from satchel.errors import Conflicting, LeaseHeld
from satchel.results import Held

LOGS = ("messages", "calls")
PATHS = ("p0.txt", "p1.txt", "d/p2.txt", "p3.bin")


class Diary:
    """Outlives its program: each line is written before the next call."""

    def __init__(self, path: Path):
        self._file = path.open("a")

    def write(self, kind: str, number: int, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "number": number, "at": time.monotonic(), **facts})
        self._file.write(f"{line}\n")
        self._file.flush()


def read(path: Path) -> list[dict[str, Any]]:
    """A line that a kill has torn does not count."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wanted(rng: random.Random, name: str, number: int, known: dict[str, int]) -> dict[str, Any]:
    """A call. `known`: versions of files, as this program has last seen them."""
    path, mark = rng.choice(PATHS), f"{name}.{number}"
    match rng.choice(("append", "append", "append", "put", "put", "remove", "rows", "get")):
        case "append":
            rows = [f"{mark}.{place}" for place in range(rng.choice((1, 1, 2, 5)))]
            key = mark if rng.random() < 0.6 else None
            return {"call": "append", "log": rng.choice(LOGS), "rows": rows, "key": key}
        case "put":
            size = 70_000 if rng.random() < 0.1 else rng.choice((0, 10, 3000))
            if_version = known.get(path, 0) if rng.random() < 0.5 else None
            return {"call": "put", "path": path, "text": mark, "size": size, "if_version": if_version}
        case "remove":
            return {"call": "remove", "path": path}
        case "rows":
            return {"call": "rows", "log": rng.choice(LOGS)}
    return {"call": "get", "path": path}


def data_of(call: dict[str, Any]) -> bytes:
    return f"{call['text']}\n{'x' * call['size']}".encode()


def row_of(log: str, value: str) -> dict[str, Any]:
    return {"role": "user", "content": value} if log == "messages" else {"value": value}


def value_of(row: Any) -> str:
    return str(row.value.get("content") or row.value.get("value"))


def do(held: Held, call: dict[str, Any], known: dict[str, int]) -> Any:
    match call["call"]:
        case "append":
            rows = [row_of(call["log"], each) for each in call["rows"]]
            return held.append(rows, log=call["log"], key=call["key"])
        case "put":
            version = held.put(call["path"], data_of(call), if_version=call["if_version"])
            known[call["path"]] = version
            return version
        case "remove":
            known.pop(call["path"], None)
            return held.remove(call["path"])
        case "rows":
            return [value_of(row) for row in held.rows(call["log"])]
    found = held.get(call["path"])
    known[call["path"]] = found.version if found is not None else 0
    return [found.version, found.text.partition("\n")[0]] if found is not None else None


def main(url: str, name: str, seed: str, diary: Path) -> None:
    told = read(diary)
    begun = [each for each in told if each["kind"] == "begun"]
    number = begun[-1]["number"] if begun else 0
    open_call = begun[-1] if begun and told[-1]["kind"] in ("begun", "lost") else None
    rng, known, book = random.Random(f"{seed} {name} {number}"), dict[str, int](), Diary(diary)
    held = satchel.hold(url, kind="oracle", wait=100, idle=rng.choice((0.0, 0.005, 0.03)))
    while True:
        if open_call is not None and open_call.get("key"):
            call = {name: value for name, value in open_call.items() if name not in ("kind", "number", "at")}
        else:
            number += 1
            call = wanted(rng, name, number, known)
        open_call = None
        book.write("begun", number, **call)
        try:
            book.write("returned", number, result=do(held, call, known))
        except Conflicting:
            book.write("conflicting", number)
        except LeaseHeld as error:  # a slow machine: the other has taken it, and the outcome is unknown
            if "attempts failed" in str(error):
                raise
            book.write("lost", number)
            open_call = call
        if rng.random() < 0.2:
            time.sleep(rng.random() * 0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
