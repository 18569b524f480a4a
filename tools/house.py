"""How big the house is, and how far a call walks through it.

`python tools/house.py` prints a figure a line, next to its goal; `--json` prints them as JSON, `--rooms` those of each
room. The figures:

* modules, lines, and statements without docstrings, of what is installed;
* modules of fewer than 40 lines, rooms of more than 15 modules, and names of modules and public classes that are used
  twice;
* public names of `satchel`;
* for three ways through the code, the modules and the rooms that a trace enters. A real run takes each way.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("schemas", "workspace", "runtime")
GOALS = {
    "modules": 280,
    "statements": 30_500,
    "modules under 40 lines": 0,
    "rooms over 15 modules": 0,
    "names used twice": 0,
    "public names": 40,
    "a step's result: modules": 10,
    "a step's result: rooms": 5,
    "a saved state.json: modules": 30,
    "a saved state.json: rooms": 8,
    "an answer in a file: modules": 30,
    "an answer in a file: rooms": 8,
}


def modules() -> Iterator[Path]:
    """The modules of the installed package, without the samples."""
    for layer in LAYERS:
        yield from sorted((ROOT / layer).rglob("*.py"))
    for path in sorted((ROOT / "src" / "satchel").rglob("*.py")):
        if path.resolve().is_relative_to(ROOT / "src"):  # the layers are links here
            yield path


def room_of(path: Path) -> str:
    return str(path.relative_to(ROOT).parent)


def statements_of(tree: ast.AST) -> int:
    """Statements without docstrings."""
    return sum(isinstance(each, ast.stmt) and not _is_text(each) for each in ast.walk(tree))


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def size() -> dict[str, int]:
    trees = {path: ast.parse(path.read_text()) for path in modules()}
    lines = {path: len(path.read_text().splitlines()) for path in trees}
    rooms = Counter(map(room_of, trees))
    used = Counter(path.stem for path in trees if not path.stem.startswith("__"))
    used += Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    import satchel

    return {
        "modules": len(trees),
        "lines": sum(lines.values()),
        "statements": sum(map(statements_of, trees.values())),
        "modules under 40 lines": sum(n < 40 for path, n in lines.items() if path.name != "__init__.py"),
        "rooms over 15 modules": sum(n > 15 for n in rooms.values()),
        "names used twice": sum(n > 1 for n in used.values()),
        "public names": len(satchel.__all__),
    }


def rooms() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for path in modules():
        text = path.read_text()
        room = found.setdefault(room_of(path), {"modules": 0, "lines": 0, "statements": 0})
        room["modules"] += 1
        room["lines"] += len(text.splitlines())
        room["statements"] += statements_of(ast.parse(text))
    return found


class Trace:
    """The modules of Satchel whose functions are called in any thread, from `begin` to `end`."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_on = False

    def begin(self) -> None:
        self._is_on = True

    def end(self) -> None:
        self._is_on = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if self._is_on and event == "call":
            self._files.add(frame.f_code.co_filename)

    def counts(self, way: str) -> dict[str, int]:
        entered = {path for path in map(Path, self._files) if path.resolve().is_relative_to(ROOT)}
        inside = {path.resolve() for path in entered} & {path.resolve() for path in modules()}
        return {f"{way}: modules": len(inside), f"{way}: rooms": len(set(map(room_of, inside)))}


def traced(way: str, agent: Callable[[Trace, Path], Any], folder: Path) -> dict[str, int]:
    """Run an agent in this process, and count what it enters while its trace is on."""
    import satchel

    trace = Trace()
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: traced\nagent: agent.py:main\n")
    (folder / "agent.py").write_text("main = None\n")
    with trace.installed():
        satchel.run(folder, agent(trace, folder)).raise_for_status()  # the way of a failing run is another one
    return trace.counts(way)


def a_step(trace: Trace, folder: Path) -> Any:
    """From the return of a step's function to the synced line of its result."""
    import satchel
    from satchel.workspace.store import syscalls

    sync = syscalls.Syscalls.sync_data

    def sync_data(self: Any, fd: int) -> None:
        sync(self, fd)
        trace.end()

    syscalls.Syscalls.sync_data = sync_data  # type: ignore[method-assign]

    @satchel.step
    async def work() -> int:
        trace.begin()
        return 1

    @satchel.agent
    async def main(run: satchel.Run) -> None:
        await work()
        await asyncio.sleep(0.5)

    return main


def a_saved_state(trace: Trace, folder: Path) -> Any:
    """From the save of state.json to the agent's next line that sees it."""
    import satchel

    @satchel.agent(state=dict)
    async def main(run: satchel.Run) -> None:
        async def put() -> None:
            run.state["x"] = 1

        await run.scope("put", put)
        file = folder / "state.json"
        while not file.exists() or '"x": 1' not in file.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        saved = file.with_name("state.json.new")
        saved.write_text(file.read_text().replace('"x": 1', '"x": 2'))
        trace.begin()
        os.replace(saved, file)
        while run.state["x"] == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        trace.end()

    return main


def an_answer(trace: Trace, folder: Path) -> Any:
    """From the save of an answer in approvals/ to the agent's next line."""
    import satchel

    def answer() -> None:
        file = folder / "approvals" / "a1.yaml"
        while not file.exists():
            threading.Event().wait(0.05)
        text = file.read_text()
        trace.begin()
        file.write_text(text.replace("decision:", "decision: approve", 1))

    @satchel.agent
    async def main(run: satchel.Run) -> None:
        thread = threading.Thread(target=answer)
        thread.start()
        await run.ask("Go?", choices=["approve", "reject"])
        trace.end()
        thread.join()

    return main


WAYS = {"a step's result": a_step, "a saved state.json": a_saved_state, "an answer in a file": an_answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--rooms", action="store_true", help="print the size of each room")
    wanted = parser.parse_args()
    if wanted.rooms:
        for room, found in rooms().items():
            print(f"{room:32} {found['modules']:4} modules {found['statements']:6} statements {found['lines']:6} lines")
        return
    counts = size()
    with tempfile.TemporaryDirectory() as temporary:
        for number, (way, agent) in enumerate(WAYS.items()):
            counts |= traced(way, agent, Path(temporary) / str(number))
    if wanted.json:
        print(json.dumps(counts, indent=2))
        return
    for name, count in counts.items():
        print(f"{name:32} {count:6,}" + (f"  goal {GOALS[name]:,}" if name in GOALS else ""))


if __name__ == "__main__":
    main()
