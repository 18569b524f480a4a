"""`python -m benchmarks [NAME ...]`: measures, and prints a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from . import bucket, growth, imports, messages, parallel, pipelined, resume, shared, steps, stream, waiting
from .measuring import REPOSITORY, Ground, Result, file_system, ground

_ALL: dict[str, Callable[[Ground], Iterator[Result]]] = {
    "steps": steps.measure,
    "pipelined": pipelined.measure,
    "growth": growth.measure,
    "parallel": parallel.measure,
    "shared": shared.measure,
    "messages": messages.measure,
    "resume": resume.measure,
    "stream": stream.measure,
    "imports": imports.measure,
    "bucket": bucket.measure,
    "waiting": waiting.measure,
}


def main() -> int:
    arguments = _arguments()
    folder = arguments.dir.resolve()
    results: list[Result] = []
    broken: list[str] = []
    with ground(folder, quick=arguments.quick) as place:
        if not arguments.json:
            print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores,")
            print(f"load {os.getloadavg()[0]:.1f}; {folder} is on {file_system(folder)}\n")
            print(_row("measure", "result", "of limit", "", "target"))
        for name in arguments.names or _ALL:
            try:
                for result in _ALL[name](place):
                    results.append(result)
                    if not arguments.json:
                        _print(result)
            except subprocess.CalledProcessError as error:
                broken.append(name)
                print(f"{name}: {' '.join(error.cmd[1:4])} failed: {error.stderr.strip()[-200:]}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([{**asdict(result), "over": result.is_over} for result in results], indent=2))
    else:
        _sum_up(results)
    return int(arguments.check and (bool(broken) or any(result.fails for result in results)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure, and print a table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(_ALL)}; all if left out")
    parser.add_argument("--dir", type=Path, default=REPOSITORY.parent, help="a folder on the disk to measure")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller runs; only for a first look")
    parser.add_argument("--json", action="store_true", help="the results as JSON")
    parser.add_argument("--check", action="store_true", help="fail if a count or a size is over, or a benchmark breaks")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in _ALL]:
        parser.error(f"there is no benchmark {unknown[0]!r}")
    return arguments


def _sum_up(results: list[Result]) -> None:
    """The results over their targets, at the end. Times only warn, because they depend on other load of the machine."""
    for result in results:
        if result.is_over:
            kind = "over" if result.fails else "a time that is over"
            print(f"{kind}: {result.measure}: {result.text}; {result.target}")


def _print(result: Result) -> None:
    share = f"{result.found / result.limit:.2f}" if result.limit else ""
    verdict = "" if result.limit is None else "over" if result.is_over else "ok"
    print(_row(result.measure, result.text, share, verdict, result.target))
    if result.basis:
        print(f"    {result.basis}")


def _row(measure: str, result: str, share: str, verdict: str, target: str) -> str:
    return f"{measure:<52} {result:<28} {share:>8} {verdict:<4}  {target}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
