"""What people do by hand to the files of a run, row by row: each act is obeyed, refused aloud, or no instruction.

The run has four items. `one` is done. `two` has begun: its step `read` is recorded, and its step `join` has failed (the
run is stopped) or is at work. Each row is tried on a stopped and on an active run, on a disk and in a bucket.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from properties import ROUNDS
from servers import Server

from satchel import Item, Run, agent, effect, step
from satchel.runtime.execution.running import Outcome, run
from satchel.workspace import journal
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Edited
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import Store, open_store

from .running import PATIENCE, Told

How = Literal["obeyed", "asked", "refused", "nothing"]
Change = Callable[[str], str | None]
ALL = "(two) three four"
READ = "steps/2-two/01-read.json"


class Act(NamedTuple):
    """`says`: words that the person is told. `then`: the items that are done afterwards; in brackets, those whose first
    step is not done again. `at_work`: see there; "perhaps asked" where it depends on how far the run has come when it
    reads the file."""

    act: str
    path: str
    change: Change  # None: the file is removed
    says: str
    then: str = ALL
    at_work: str = ""  # instead of `then`, if the run is active; or "asked", if it has changed the same meanwhile
    how: How = "obeyed"


def put(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert text.count(old) == 1, (old, text)
        return text.replace(old, new)

    return change


def data(**values: Any) -> Change:
    def change(text: str) -> str:
        whole = json.loads(text)
        whole["data"] |= values
        return json.dumps(whole, indent=1)

    return change


def without(key: str) -> Change:
    def change(text: str) -> str:
        whole = json.loads(text)
        del whole["data"][key]
        return json.dumps(whole)

    return change


def new(text: str) -> Change:
    return lambda _: text


def removed(_: str) -> None:
    return None


TODO = [
    Act("tick an open item", "todo.md", put("[ ] three", "[x] three"), "'three' counts as done", "(two) four"),
    Act(
        "tick the item that has begun",
        "todo.md",
        put("[/] two", "[x] two"),
        "'two') counts as done",
        "three four",
        at_work="join two\nthree four",
    ),
    Act(
        "untick a done item",
        "todo.md",
        put("[x] one", "[ ] one"),
        "'one') will be done again",
        "read one\njoin one\n(two) three four",
        at_work="(two) read one\njoin one\nthree four",
    ),
    Act(
        "mark a done item as begun",
        "todo.md",
        put("[x] one", "[/] one"),
        "'one') will be done again",
        "read one\njoin one\n(two) three four",
        at_work="(two) read one\njoin one\nthree four",
    ),
    Act(
        "mark the begun item as open",
        "todo.md",
        put("[/] two", "[ ] two"),
        "'two') will be done again",
        "two three four",
        at_work="join two\ntwo three four",
    ),
    Act("drop an open item", "todo.md", put("[ ] three", "[-] three"), "'three' is dropped", "(two) four"),
    Act(
        "drop the begun item",
        "todo.md",
        put("[/] two", "[-] two"),
        "'two') is dropped",
        "three four",
        at_work="join two\nthree four",
    ),
    Act("drop a done item", "todo.md", put("[x] one", "[-] one"), "'one'"),
    Act("add an item at the end", "todo.md", put("four\n", "four\n- [ ] five\n"), "'five' is new", f"{ALL} five"),
    Act(
        "add an item in between",
        "todo.md",
        put("- [ ] three", "- [ ] new\n- [ ] three"),
        "'new' is new",
        "(two) new three four",
    ),
    Act(
        "add an item before all",
        "todo.md",
        put("- [x] one", "- [ ] zero\n- [x] one"),
        "'zero' is new",
        "zero (two) three four",
        at_work="(two) zero three four",
    ),
    Act("add a done item", "todo.md", put("- [ ] three", "- [x] new\n- [ ] three"), "'new' is new"),
    Act("add an item with a letter", "todo.md", put("- [ ] three", "* [X] new\n- [ ] three"), "'new' is new"),
    Act("remove an open item", "todo.md", put("- [ ] three\n", ""), "'three' is removed", "(two) four"),
    Act(
        "remove the begun item",
        "todo.md",
        put("- [/] two ^2\n", ""),
        "'two'",
        "three four",
        at_work="join two\nthree four",
    ),
    Act("remove a done item", "todo.md", put("- [x] one ^1\n", ""), "'one'"),
    Act("reword an open item", "todo.md", put("three", "drei"), "'drei'", "(two) drei four"),
    Act(
        "reword the begun item",
        "todo.md",
        put("two", "zwei"),
        "now reads 'zwei'",
        "zwei three four",
        at_work="(two) three four",
    ),
    Act("reword a done item", "todo.md", put("one", "eins"), "'eins'"),
    Act("swap two open items", "todo.md", put("three\n- [ ] four", "four\n- [ ] three"), "order", "(two) four three"),
    Act(
        "move an open item before the begun one",
        "todo.md",
        put("- [/] two ^2\n- [ ] three", "- [ ] three\n- [/] two ^2"),
        "order",
        "three (two) four",
        at_work="(two) three four",
    ),
    Act(
        "indent an open item under another",
        "todo.md",
        put("- [ ] four", "  - [ ] four"),
        "'four' is now under 'three'",
        "(two) four three",
    ),
    Act(
        "indent an item under the begun one",
        "todo.md",
        put("- [ ] three", "  - [ ] three"),
        "'three' is now under 'two'",
        "three (two) four",
        at_work="join two\nthree send two!\nfour",
    ),
    Act("indent an item under a done one", "todo.md", put("- [/] two", "  - [/] two"), "'two' is now under 'one'"),
    Act(
        "group items under a heading",
        "todo.md",
        put("- [ ] three", "## Later\n\n- [ ] three"),
        "the text around the items",
    ),
    Act(
        "group items under a new item",
        "todo.md",
        put("- [ ] three\n- [ ] four", "- [ ] both\n  - [ ] three\n  - [ ] four"),
        "'both' is new",
    ),
    Act(
        "write prose between items",
        "todo.md",
        put("- [ ] three", "\nAda says: gently.\n\n- [ ] three"),
        "the text around the items",
    ),
    Act(
        "write a comment in HTML",
        "todo.md",
        put("- [ ] three", "<!-- gently -->\n- [ ] three"),
        "the text around the items",
    ),
    Act("write a list without boxes", "todo.md", put("- [ ] three", "- a note\n- [ ] three"), "a note"),
    Act("forget the space in a box", "todo.md", put("- [ ] three", "- [] new\n- [ ] three"), "line", how="refused"),
    Act("type an unknown mark", "todo.md", put("[ ] three", "[?] three"), "line", how="refused"),
    Act("use the same id twice", "todo.md", put("- [ ] three", "- [ ] three ^1"), "^1", how="refused"),
    Act("give an id that no item has", "todo.md", put("- [ ] three", "- [ ] three ^9"), "'three' has the id ^9"),
    Act(
        "remove the stamp",
        "todo.md",
        lambda text: re.sub(r"\n<!-- satchel.*\n", "", text),
        "",
        how="nothing",
        at_work="perhaps asked",
    ),
    Act(
        "remove the stamp and tick",
        "todo.md",
        lambda text: re.sub(r"\n<!-- satchel.*\n", "", text).replace("[ ] three", "[x] three"),
        "'three'",
        "(two) four",
        at_work="perhaps asked",
    ),
    Act(
        "change the stamp",
        "todo.md",
        lambda text: re.sub(r"<!-- satchel.*", "<!-- satchel nonsense -->", text),
        "",
        at_work="perhaps asked",
    ),
    Act("empty the plan", "todo.md", new(""), "", how="nothing"),
    Act("remove the plan", "todo.md", removed, "", how="nothing"),
    Act(
        "cut the end off the plan",
        "todo.md",
        lambda text: text[: text.index("- [ ] four")],
        "conflicts with the run",
        how="asked",
    ),
    Act("save with other line ends", "todo.md", lambda text: text.replace("\n", "\r\n"), "the text around the items"),
    Act("save with a byte order mark", "todo.md", lambda text: "\ufeff" + text, ""),
    Act(
        "save with tabs for blanks",
        "todo.md",
        put("- [ ] four", "\t- [ ] four"),
        "'four' is now under 'three'",
        "(two) four three",
    ),
    Act(
        "leave a conflict of git",
        "todo.md",
        put("- [ ] three", "<<<<<<< HEAD\n- [ ] three\n=======\n- [x] three\n>>>>>>> b"),
        "a conflict that git has left",
        how="refused",
    ),
]
STATE = [
    Act("change a number", "state.json", data(n=40), "data.n is now 40", at_work="asked"),
    Act("add to a list", "state.json", data(words=["one", "mine"]), "data.words"),
    Act("empty a list", "state.json", data(words=[]), "data.words", at_work="asked"),
    Act("add to a mapping", "state.json", data(notes={"ada": "away"}), "data.notes"),
    Act("write a value of another type", "state.json", data(n="many"), "data.n", how="refused"),
    Act("add a key that the type has not", "state.json", data(m=1), "data.m", how="refused"),
    Act("misspell a key", "state.json", lambda text: text.replace('"words"', '"wrods"'), "wrods", how="refused"),
    Act("remove a key that has a default", "state.json", without("notes"), "data.notes"),
    Act(
        "change what the run records",
        "state.json",
        put('"run_id": "run-1"', '"run_id": "run-2"'),
        "does not belong to this run",
        how="refused",
    ),
    Act(
        "change where the run is",
        "state.json",
        lambda text: re.sub(r'"status": "\w+"', '"status": "completed"', text),
        "status",
        how="refused",
    ),
    Act(
        "add a key beside the data", "state.json", put('"data": {', '"note": "mine", "data": {'), "note", how="refused"
    ),
    Act("forget a comma", "state.json", put('"n": 1,', '"n": 1'), "line", how="refused"),
    Act("forget the last bracket", "state.json", lambda text: text.rstrip()[:-1], "never closed", how="refused"),
    Act("empty the state", "state.json", new(""), "", how="nothing"),
    Act("remove the state", "state.json", removed, "", how="nothing"),
    Act(
        "save null for the data",
        "state.json",
        lambda text: json.dumps(json.loads(text) | {"data": None}),
        "data",
        how="refused",
    ),
    Act("lay it out in another way", "state.json", lambda text: json.dumps(json.loads(text)), "", how="nothing"),
    Act("write NaN", "state.json", put('"n": 1', '"n": NaN'), "", how="refused"),
    Act("write a key twice", "state.json", put('"n": 1', '"n": 1, "n": 2'), "", how="refused"),
]
STEPS = [
    Act(
        "change a result",
        READ,
        put('"result": "TWO"', '"result": "ZWEI"'),
        "now counts as having returned",
        "(zwei) three four",
        at_work="join two\n(zwei) three four",
    ),
    Act(
        "ask for a step again",
        READ,
        put('"result"', '"redo": true, "result"'),
        "again",
        "two three four",
        at_work="join two\nread two\nsend two!\nthree four",
    ),
    Act("change a result to another type", READ, put('"result": "TWO"', '"result": 2'), "expected text", how="refused"),
    Act("ask for a step with another word", READ, put('"result"', '"redo": "yes", "result"'), "`redo`", how="refused"),
    Act("change the arguments of a step", READ, put('two\\")', 'zwei\\")'), "`call`", how="refused"),
    Act("remove the file of a step", READ, removed, "", how="nothing"),
    Act("empty the file of a step", READ, new(""), "", how="nothing"),
    Act("misspell redo", READ, put('"result"', '"reod": true, "result"'), "reod", how="refused"),
    Act("copy the file of a step", "steps/2-two/01-read copy.json", new("{}"), "", how="nothing"),
]
TALK = [
    Act("correct a message", "messages.jsonl", put("did one", "did it"), "message"),
    Act("remove a message", "messages.jsonl", lambda text: text[text.index("\n") + 1 :], "message"),
    Act(
        "insert a message",
        "messages.jsonl",
        lambda text: text.replace("\n", '\n{"role": "user", "content": "gently"}\n', 1),
        "message",
    ),
    Act(
        "add a message at the end",
        "messages.jsonl",
        lambda text: text + '{"role": "user", "content": "gently"}\n',
        "message",
    ),
    Act(
        "say where the conversation is cut",
        "messages.jsonl",
        lambda text: text.replace("\n", '\n{"cut": true}\n', 1),
        "message",
    ),
    Act("cut the last message off", "messages.jsonl", lambda text: text[: text.index("\n") + 1], "", how="nothing"),
    Act("cut a message in the middle", "messages.jsonl", lambda text: text[:-20], "", how="nothing"),
    Act("empty the conversation", "messages.jsonl", new(""), "", how="nothing"),
    Act("remove the conversation", "messages.jsonl", removed, "", how="nothing"),
    Act(
        "forget a quote in a message", "messages.jsonl", put('"content":"did', '"content":did'), "line 2", how="refused"
    ),
    Act("forget the role of a message", "messages.jsonl", put('"role":"assistant",', ""), "role", how="refused"),
    Act("give a message the number of another", "messages.jsonl", put('"seq":12', '"seq":11'), "seq", how="refused"),
    Act("give a message a number of its own", "messages.jsonl", put('"seq":12', '"seq":99'), "99", how="refused"),
]
PAUSE = [
    Act("ask for a pause", "pause.yaml", new("reason: lunch\n"), "lunch", "", at_work="join two"),
    Act("ask for a pause by an empty file", "pause.yaml", new(""), "manual", "", at_work="join two"),
    Act("misspell the key of a pause", "pause.yaml", new("raeson: lunch\n"), "raeson", "", how="refused"),
    Act("forget a bracket in a pause", "pause.yaml", new("reason: [\n"), "line", "", how="refused"),
]
OTHERS = [
    Act("change the settings", "workspace.yaml", put("agent:", "settings: {city: Rome}\nagent:"), "settings"),
    Act(
        "misspell a key of the definition",
        "workspace.yaml",
        put("agent:", "setings: {}\nagent:"),
        "setings",
        how="refused",
    ),
    Act("give it another run_id", "workspace.yaml", put("run-1", "run-2"), "run_id", how="refused"),
    Act("empty the definition", "workspace.yaml", new(""), "", how="refused"),
    Act("change an output", "outputs/one.txt", new("by Ada"), ""),
    Act("remove an output", "outputs/one.txt", removed, ""),
    Act("remove the journal's neighbours", "brief.md", removed, "", how="nothing"),
    Act("send a message", "inbox/note.yaml", new("kind: message\ntext: gently\n"), ""),
    Act("save a second plan beside it", "todo (conflicted copy).md", new("- [ ] mine\n"), "", how="nothing"),
]
ACTS = TODO + STATE + STEPS + TALK + PAUSE + OTHERS


class State(msgspec.Struct):
    words: list[str] = []
    n: int = 0
    notes: dict[str, str] = {}


class Scene:
    """The run, what really happens in it, and the person's files."""

    def __init__(self, store: Store):
        self.store, self.told, self.calls = store, Told(), list[str]()
        self.reached, self.goes_on = threading.Event(), threading.Event()
        self.fails = False
        self.error: BaseException | None = None
        self.outcome: Outcome | None = None
        store.replace("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
        self.agent = self._make()

    def _make(self) -> Any:
        @step
        def read(text: str) -> str:
            self.calls.append(f"read {text}")
            return text.upper()

        @step
        def join(text: str) -> str:
            if text == "TWO" and self.fails:
                raise TypeError("two fails")
            if text == "TWO" and not self.goes_on.is_set():
                self.reached.set()
                assert self.goes_on.wait(PATIENCE)
            self.calls.append(f"join {text.lower()}")
            return text + "!"

        @effect
        def send(text: str) -> str:
            self.calls.append(f"send {text.lower()}")
            return "sent"

        async def work(run: Run[State], item: Item) -> None:
            text = await join(await read(item.text))
            await send(text)
            await run.output(f"{item.text}.txt", text)
            run.messages.add("user", f"do {item.text}")
            run.messages.add("assistant", f"did {item.text}")
            run.state.words.append(item.text)
            run.state.n += 1

        @agent(state=State)
        async def main(run: Run[State]) -> None:
            if not run.todo.items:
                await run.plan(None, ["one", "two", "three", "four"])
            await run.todo.each(work)

        return main

    def run(self, *, wake: bool = False) -> None:
        self.error = None
        try:
            self.outcome = run(self.store, self.agent, watch=self.told, wake=wake)
        except SatchelError as error:
            self.error = error

    def do(self, act: Act) -> str | None:
        """What was there before."""
        try:
            before = self.store.read(act.path).data.decode()
        except FileNotFoundError:
            before = None
        text = act.change(before or "")
        if text is None:
            self.store.remove(act.path)
        else:
            self.store.replace(act.path, text.encode())
        return before

    def shows_the_moment(self) -> bool:
        """Whether a person sees that the second item is at work."""
        wanted = {"todo.md": b"[/] two ^2", "state.json": b'"n": 1', READ: b"TWO", "messages.jsonl": b"did one"}
        self.store.refresh()
        there = {path: self.store.read(path).data for path in wanted if self.store.version(path) is not None}
        return all(words in there.get(path, b"") for path, words in wanted.items())

    @property
    def said(self) -> str:
        """All that the person is told: by the record, by the report, on the screen, by an error."""
        lines = journal.read(self.store, after=0).lines
        recorded = [say for line in lines if isinstance(line.record, Edited) for say in line.record.says]
        report = [remark.text for remark in self.outcome.report.remarks] if self.outcome else []
        return "\n".join([*recorded, *report, *self.told.lines, str(self.error or "")])

    @property
    def done(self) -> str:
        """The calls in short."""
        log = re.sub(r"read (\w+)\njoin \1\nsend \1!(\n|$)", r"\1 ", "\n".join(self.calls))
        return re.sub(r"join (\w+)\nsend \1!(\n|$)", r"(\1) ", log).strip()


@contextmanager
def at_work(scene: Scene) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=scene.run, daemon=True)
    thread.start()
    try:
        assert scene.reached.wait(PATIENCE), scene.error
        until(scene.shows_the_moment, "the files")
        yield thread
    finally:
        scene.goes_on.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def stopped(scene: Scene) -> None:
    scene.fails = True
    scene.run()
    assert scene.outcome and scene.outcome.status == "failed"
    scene.fails, scene.outcome = False, None
    scene.goes_on.set()
    scene.calls.clear()
    scene.told.lines.clear()


def settled(scene: Scene, act: Act, then: str) -> None:
    """The act is obeyed, or is no instruction, and the run goes on to its end, or pauses."""
    assert scene.error is None and scene.outcome, scene.error
    assert scene.done == then
    assert act.says in scene.said, scene.said
    assert act.how != "nothing" or not edited(scene)
    assert scene.outcome.status == ("paused" if act.path == "pause.yaml" else "completed")


def refused(scene: Scene, act: Act, how: How, before: str | None) -> None:
    """The person is told, with the words, and nothing of the run or of what they typed is lost."""
    assert ("conflicts with the run" if how == "asked" else act.says) in scene.said and not edited(scene)
    typed = act.change(before or "")
    name, dot, kind = act.path.rpartition(".")
    kept = [f"{name}.rejected{dot}{kind}", act.path]
    texts = [scene.store.read(path).data.decode() for path in kept if scene.store.version(path) is not None]
    assert typed in texts, "what was typed is gone"


def edited(scene: Scene) -> list[str]:
    lines = journal.read(scene.store, after=0).lines
    return [line.record.file for line in lines if isinstance(line.record, Edited)]


def mended(scene: Scene, act: Act, how: How, before: str | None) -> None:
    """The person takes the refused act back, and the run goes on as if it had not been."""
    if how == "asked":
        with opened(scene.store, "merge", Report(), choices={act.path: "ours"}) as workspace:
            workspace.close()
    elif act.path == "pause.yaml":
        scene.store.replace(act.path, b"status: resume\n")
    elif before is None:
        scene.store.remove(act.path)
    else:
        scene.store.replace(act.path, before.encode())
    scene.run(wake=how == "asked")
    assert scene.error is None and scene.outcome and scene.outcome.status == "completed", scene.error
    assert scene.done in (ALL, act.then) if how == "asked" else scene.done == ALL


def try_stopped(scene: Scene, act: Act) -> None:
    stopped(scene)
    before = scene.do(act)
    scene.run()
    if act.how in ("obeyed", "nothing"):
        settled(scene, act, act.then)
        return
    assert scene.error is not None and not scene.calls
    refused(scene, act, act.how, before)
    mended(scene, act, act.how, before)


def try_at_work(scene: Scene, act: Act) -> None:
    with at_work(scene) as thread:
        scene.calls.clear()
        before = scene.do(act)
        if act.says or act.at_work:
            until(lambda: scene.told.lines, act.act)
        scene.goes_on.set()
        thread.join(PATIENCE)
    how: How = "asked" if "asked" in act.at_work else act.how
    is_merged = act.at_work == "perhaps asked" and "conflicts" not in scene.said
    if how in ("obeyed", "nothing") or is_merged:
        settled(scene, act, act.then if is_merged else act.at_work or act.then)
        return
    refused(scene, act, how, before)
    if scene.outcome is not None and scene.outcome.status == "completed":
        assert scene.done == ALL
    else:
        mended(scene, act, how, before)


def until(is_so: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up, f"{what} never came"
        time.sleep(0.01)


EACH = pytest.mark.parametrize("act", ACTS, ids=lambda act: act.act)


@pytest.mark.sampled(every=5)
@EACH
def test_an_act_on_a_stopped_run_is_not_obeyed_or_refused(act: Act, tmp_path: Path) -> None:
    try_stopped(Scene(open_store(str(tmp_path))), act)


@pytest.mark.slow
@EACH
def test_an_act_on_an_active_run_is_not_obeyed_or_refused(act: Act, tmp_path: Path) -> None:
    try_at_work(Scene(open_store(str(tmp_path))), act)


@pytest.fixture
def in_a_bucket(seaweedfs: Server) -> Scene:
    return Scene(open_store(seaweedfs.place(), seaweedfs.storage_options()))


SOME = pytest.mark.parametrize("act", ACTS if ROUNDS > 1 else ACTS[::8], ids=lambda act: act.act)
"""A round tries an eighth of them in a bucket; a soak tries all."""


@pytest.mark.slow
@SOME
def test_an_act_on_a_stopped_run_in_a_bucket_is_not_obeyed_or_refused(act: Act, in_a_bucket: Scene) -> None:
    try_stopped(in_a_bucket, act)


@pytest.mark.slow
@SOME
def test_an_act_on_an_active_run_in_a_bucket_is_not_obeyed_or_refused(act: Act, in_a_bucket: Scene) -> None:
    try_at_work(in_a_bucket, act)


def test_a_row_is_missing() -> None:
    assert len(ACTS) >= 80 and len({act.act for act in ACTS}) == len(ACTS)
