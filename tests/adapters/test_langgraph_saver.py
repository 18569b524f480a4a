"""`SatchelSaver`: LangGraph's own conformance suite, and what that does not ask."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
import warm
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from servers import Server

import satchel
from satchel.adapters.langgraph import SatchelSaver
from satchel.errors import Conflicting, LeaseHeld, UsageError

CONFIG: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SatchelSaver]:
    made = SatchelSaver(tmp_path / "threads")
    yield made
    made.close()


def log(saver: SatchelSaver, thread: str = "one") -> str:
    return Path(saver.folder(thread), "logs/checkpoints.jsonl").read_text()


def put(saver: SatchelSaver, values: dict[str, Any], parent: Any = CONFIG, **metadata: Any) -> Any:
    """A checkpoint in which all these values are new."""
    checkpoint = empty_checkpoint()
    version = 1 + max(
        (0, *(row["values"][name]["version"] for row in rows(saver) if "values" in row for name in row["values"]))
    )
    checkpoint |= {"channel_values": values, "channel_versions": dict.fromkeys(values, version)}
    about: Any = {"source": "loop", "step": 1, "parents": {}, **metadata}
    return saver.put(parent, checkpoint, about, dict.fromkeys(values, version))


def rows(saver: SatchelSaver, thread: str = "one") -> list[Any]:
    try:
        return [row.value for row in satchel.open(saver.folder(thread)).rows("checkpoints")]
    except UsageError:
        return []


def checked(report: Any) -> None:
    """All eight capabilities are there, and all 81 clauses hold."""
    found = report.results
    assert {*found} == {each.value for each in Capability} and all(each.detected for each in found.values())
    assert [failure for each in found.values() for failure in each.failures] == []
    assert sum(each.tests_passed for each in found.values()) == 81


def test_a_clause_of_the_conformance_suite_fails_on_a_disk(tmp_path: Path) -> None:
    @checkpointer_test(name="on a disk")
    async def made() -> AsyncIterator[SatchelSaver]:
        saver = SatchelSaver(tmp_path / str(uuid4()))
        yield saver
        saver.close()

    checked(asyncio.run(validate(made)))


@pytest.mark.slow
def test_a_clause_of_the_conformance_suite_fails_with_encryption(tmp_path: Path) -> None:
    @checkpointer_test(name="encrypted")
    async def made() -> AsyncIterator[SatchelSaver]:
        saver = SatchelSaver(tmp_path / str(uuid4()), serde=EncryptedSerializer(Cipher()))
        yield saver
        saver.close()

    checked(asyncio.run(validate(made)))


@pytest.fixture
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    server: Server = request.getfixturevalue(request.param)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.slow
@pytest.mark.parametrize("bucket", ["seaweedfs", pytest.param("moto", marks=pytest.mark.soak)], indirect=True)
def test_a_clause_of_the_conformance_suite_fails_in_a_bucket(bucket: Server) -> None:
    @checkpointer_test(name="in a bucket")
    async def made() -> AsyncIterator[SatchelSaver]:
        saver = SatchelSaver(bucket.place())
        yield saver
        await asyncio.to_thread(saver.close)

    checked(asyncio.run(validate(made)))


@pytest.mark.parametrize("bucket", ["seaweedfs"], indirect=True)
def test_a_thread_in_a_bucket_ends_with_its_process(bucket: Server) -> None:
    place = bucket.place()
    first = SatchelSaver(place)
    talking(3).compile(checkpointer=first).invoke({"messages": [HumanMessage("Go")]}, CONFIG)
    first.close()
    second = SatchelSaver(place)
    graph = talking(5).compile(checkpointer=second)
    assert len(graph.get_state(CONFIG).values["messages"]) == 3
    graph.invoke({"messages": [HumanMessage("On")]}, CONFIG)
    second.close()
    assert [each.config["configurable"]["thread_id"] for each in SatchelSaver(place).list(None)] == ["one"] * 7


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]


def talking(most: int) -> StateGraph[Any]:
    def answer(state: State) -> State:
        return {"messages": [AIMessage(f"{len(state['messages']):03}".ljust(300, "."))]}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", lambda state: END if len(state["messages"]) >= most else "answer")
    return builder


def size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def test_a_late_step_is_larger_than_an_early_one(saver: SatchelSaver) -> None:
    graph, sizes, most = talking(260).compile(checkpointer=saver), list[int](), 260
    given: Any = {"messages": [HumanMessage("?" * 300)]}
    for number, _ in enumerate(graph.stream(given, {**CONFIG, "recursion_limit": 1000}, durability="sync")):
        if number % 50 == 8:
            sizes.append(size(f"{saver.folder('one')}/journal"))
    steps = [(after - before) / 50 for before, after in pairwise(sizes)]
    assert len(steps) > 3 and max(steps) <= 1.5 * min(steps), steps
    saver.close()
    assert size(saver.folder("one")) < 10_000 * most
    again = SatchelSaver(Path(saver.folder("one")).parent)
    state = talking(260).compile(checkpointer=again).get_state(CONFIG)
    assert [int(message.content[:3]) for message in state.values["messages"][1:]] == list(range(1, 260))


def test_the_first_step_of_another_process_writes_the_whole_list(saver: SatchelSaver) -> None:
    """Each turn is a process of its own, as in a web server."""
    for turn in range(1, 30):
        each = SatchelSaver(Path(saver.folder("one")).parent)
        talking(0).compile(checkpointer=each).invoke({"messages": [HumanMessage(str(turn).ljust(300))]}, CONFIG)
        each.close()
    lengths = [len(json.dumps(row)) for row in rows(saver)]
    assert max(lengths[-20:]) < 1.5 * max(lengths[:20])


def test_a_value_comes_back_as_another_one(saver: SatchelSaver) -> None:
    """Lists that grow, shrink, change in the middle, and do not change; values of all kinds."""
    lists: list[list[Any]] = [
        [],
        [1],
        [1, 2],
        [1, 2],
        [1, {"a": b"x"}],
        [1, {"a": b"x"}, 3.5],
        [*range(20)],
        [*range(70_000)],
    ]
    lists += [[*range(70_001)], [5]]
    parent, configs = CONFIG, list[Any]()
    for number, each in enumerate(lists):
        parent = put(saver, {"grows": each, "other": {"n": number, 7: None}, "text": "é" * number}, parent)
        configs.append(parent)
    for number, config in enumerate(configs):
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {
            "grows": lists[number],
            "other": {"n": number, 7: None},
            "text": "é" * number,
        }
    assert sum("after" in row["values"]["grows"] for row in rows(saver)) == 4
    assert len(json.dumps(rows(saver)[-2])) < 1500, "one element was added to 70,000"


def test_two_branches_of_a_thread_mix_their_values(saver: SatchelSaver) -> None:
    root = put(saver, {"list": [0]})
    left = put(saver, {"list": [0, 1]}, root)
    right = put(saver, {"list": [0, 2]}, root)
    left = put(saver, {"list": [0, 1, 11]}, left)
    right = put(saver, {"list": [0, 2, 22]}, right)
    for config, values in ((root, [0]), (left, [0, 1, 11]), (right, [0, 2, 22])):
        found = saver.get_tuple(config)
        assert found is not None and found.checkpoint["channel_values"] == {"list": values}


def test_a_pruned_ancestor_takes_a_part_of_a_list_along(saver: SatchelSaver) -> None:
    config = CONFIG
    for number in range(5):
        config = put(saver, {"list": [*range(number + 1)]}, config, run_id=f"run {number}")
    saver.delete_for_runs(["run 1"])
    assert len([*saver.list(CONFIG)]) == 4
    saver.prune(["one"])
    [left] = saver.list(CONFIG)
    assert left.checkpoint["channel_values"] == {"list": [0, 1, 2, 3, 4]}


# What people see


def test_a_value_that_is_json_is_not_readable(saver: SatchelSaver) -> None:
    put(saver, {"messages": [HumanMessage("Hello there", id="m1")], "n": {"a": [1, None, "x"]}, "raw": b"\xff\x00"})
    [row] = rows(saver)
    assert row["values"]["n"] == {"version": 1, "value": {"a": [1, None, "x"]}}
    assert row["values"]["raw"] == {"version": 1, "type": "bytes", "base64": base64.b64encode(b"\xff\x00").decode()}
    saver.close()
    assert '"content":"Hello there"' in log(saver) and '"source":"loop"' in log(saver)
    assert satchel.open(saver.folder("one")).status().state == "held"


@pytest.mark.parametrize("value", [float("nan"), {"$type": [1, [2]]}, {"a": {2: 3}}, "\ud800", [[[]]] * 3, 2**63])
def test_a_value_that_json_cannot_show_is_changed(saver: SatchelSaver, value: Any) -> None:
    plain = InMemorySaver().serde
    put(saver, {"value": value})
    found = saver.get_tuple(CONFIG)
    assert found is not None
    expected = plain.loads_typed(plain.dumps_typed(value))
    assert repr(found.checkpoint["channel_values"]["value"]) == repr(expected)


def test_a_value_of_100_levels_is_refused(saver: SatchelSaver) -> None:
    value: Any = []
    for _ in range(100):
        value = [value]
    put(saver, {"value": value})
    found = saver.get_tuple(CONFIG)
    assert found is not None and found.checkpoint["channel_values"]["value"] == value


class Cipher:
    """No cipher that keeps a secret, but no byte stays what it was."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "not", bytes(255 - byte for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "not"
        return bytes(255 - byte for byte in ciphertext)


def test_an_encrypting_serializer_leaves_plain_text(tmp_path: Path) -> None:
    saver = SatchelSaver(tmp_path / "threads", serde=EncryptedSerializer(Cipher()))
    config: Any = {**CONFIG, "metadata": {"person": "a secret of Ada"}}
    graph = talking(3).compile(checkpointer=saver)
    given: Any = {"messages": [HumanMessage("a secret of Grace")]}
    graph.invoke(given, config)
    assert graph.get_state(config).values["messages"][0].content == "a secret of Grace"
    saver.close()
    files = [path for path in Path(saver.folder("one")).rglob("*") if path.is_file() and path.parent.name != "schemas"]
    plain = [path for path in files for word in (b"secret", b"HumanMessage", b".....") if word in path.read_bytes()]
    assert len(files) > 3 and not plain


class Money(BaseModel):
    euros: int


def test_looking_makes_objects_or_an_edited_value_makes_one_that_is_not_allowed(saver: SatchelSaver) -> None:
    """Types are looked up by the serializer alone, in `get_tuple`, and only those of its list."""
    put(saver, {"money": Money(euros=5)})
    code = """
import satchel, sys
rows = satchel.open(sys.argv[1]).rows("checkpoints")
assert "Money" in str(rows[0].value) and not any(name.startswith(("langgraph", "langchain")) for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, saver.folder("one")], check=True)
    strict = SatchelSaver(Path(saver.folder("one")).parent, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    found = strict.get_tuple(CONFIG)
    assert found is not None and found.checkpoint["channel_values"]["money"] == {"euros": 5}
    allowing = strict.with_allowlist([(Money.__module__, "Money")])
    found = allowing.get_tuple(CONFIG)
    assert found is not None and found.checkpoint["channel_values"]["money"] == Money(euros=5)


def test_a_saver_made_from_another_one_holds_a_thread_of_its_own(tmp_path: Path) -> None:
    saver = SatchelSaver(tmp_path / "threads", serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    clone: Any = saver.with_allowlist([(Money.__module__, "Money")])
    first = put(saver, {"list": [1]})
    put(clone, {"list": [1, 2]}, first)
    put(saver, {"list": [1, 2, 3]}, first)
    assert clone is not saver and len(rows(saver)) == 3
    saver.close()
    with pytest.raises(UsageError, match="closed"):
        put(clone, {"list": []})


# Threads and processes

_WRITER = """
import sys
from langgraph.checkpoint.base import empty_checkpoint
from satchel.adapters.langgraph import SatchelSaver
saver = SatchelSaver(sys.argv[1])
config = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
saver.put(config, empty_checkpoint(), {}, {})
print("written", flush=True)
sys.stdin.readline()
saver.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def test_two_processes_write_a_thread_at_once(saver: SatchelSaver) -> None:
    root = str(Path(saver.folder("one")).parent)
    words = [sys.executable, "-c", _WRITER, root]
    with warm.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout and other.stdout.readline() == "written\n"
        with pytest.raises(LeaseHeld):
            put(saver, {"n": 1})
        assert len([*saver.list(CONFIG)]) == 1, "who reads takes nothing"
        put(saver, {"n": 1}, {"configurable": {"thread_id": "two", "checkpoint_ns": ""}})
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "closed\n"
        put(saver, {"n": 1})
        assert len([*saver.list(CONFIG)]) == 2
        other.stdin.write("\n")


@pytest.mark.parametrize("is_new", [False, True])
def test_a_turn_goes_on_from_what_another_process_has_moved_past(saver: SatchelSaver, is_new: bool) -> None:
    parent = CONFIG if is_new else put(saver, {"n": 1})
    begun = saver.get_tuple(CONFIG)
    assert (begun is None) == is_new
    saver._tree.release()
    words = [sys.executable, "-c", _WRITER, str(Path(saver.folder("one")).parent)]
    warm.run(words, input="\n\n", stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    with pytest.raises(Conflicting, match="moved on"):
        put(saver, {"n": 2}, parent)
    newest = saver.get_tuple(CONFIG)
    assert newest is not None
    put(saver, {"n": 3}, put(saver, {"n": 2}, newest.config))
    if not is_new:
        saver.get_tuple(parent)
        put(saver, {"n": 4}, parent)  # a fork: the older one was read after that


def test_a_fork_of_nested_graphs_is_refused_after_another_process_has_written(
    saver: SatchelSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, outer = talking(0), StateGraph(State)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("a")]}, CONFIG)
    last, before, *_ = graph.get_state_history(CONFIG)
    with monkeypatch.context() as other:
        other.setattr("satchel.adapters.langgraph.saver._PROCESS", "another")
        graph.invoke({"messages": [HumanMessage("b")]}, CONFIG)
    assert graph.invoke(None, before.config)["messages"][0].content == "a"
    fork = graph.update_state(last.config, {"messages": [HumanMessage("c")]})
    assert graph.get_state(fork).values["messages"][-1].content == "c"


def test_a_saver_that_is_made_for_each_request_waits_for_the_one_before(saver: SatchelSaver) -> None:
    for number in range(3):
        put(SatchelSaver(Path(saver.folder("one")).parent), {"n": number})
    assert len([*saver.list(CONFIG)]) == 3


def test_a_saver_remembers_all_threads_for_ever(saver: SatchelSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.adapters.langgraph.saver._REMEMBERED", 3)
    places: Any = [{"configurable": {"thread_id": f"{number}", "checkpoint_ns": ""}} for number in range(5)]
    for length in (1, 2, 3):
        for place in places:
            found = saver.get_tuple(place)
            put(saver, {"list": [*range(length)]}, found.config if found else place)
            assert len(saver._last) <= 3
    for place in places:
        found = saver.get_tuple(place)
        assert found is not None and found.checkpoint["channel_values"] == {"list": [0, 1, 2]}


@pytest.mark.parametrize("id", ["", "a/../b", "A", "a", "é" * 300, "x" * 1000, "..", "con", "a\nb", "\ud800", "a.b", 7])
def test_two_threads_share_a_folder(saver: SatchelSaver, id: Any) -> None:
    config: Any = {"configurable": {"thread_id": id, "checkpoint_ns": ""}}
    folder = Path(saver.folder(str(id)))
    assert folder.parent == Path(saver.folder("one")).parent and len(folder.name) <= 51 and folder.name.isascii()
    assert folder.name.lower() == folder.name and folder.name[0].isalnum()
    assert len({saver.folder(each) for each in ("A", "a", "a ", "", "é", "e")}) == 6
    if id != "\ud800":
        put(saver, {"id": id}, config)
        found = saver.get_tuple(config)
        assert found is not None and found.checkpoint["channel_values"] == {"id": id}
        assert [each.config["configurable"]["thread_id"] for each in saver.list(None)] == [str(id)]


def test_a_write_that_comes_late_brings_a_deleted_thread_back(saver: SatchelSaver) -> None:
    config = put(saver, {"n": 1})
    saver.delete_thread("one")
    assert not Path(saver.folder("one")).exists() and saver.get_tuple(CONFIG) is None
    saver.put_writes(config, [("n", 2)], "task")
    assert saver.get_tuple(CONFIG) is None and [*saver.list(CONFIG)] == []
    saver.delete_thread("one")
    saver.delete_thread("one")


def test_a_reader_sees_less_than_was_acknowledged_or_more_than_there_is(saver: SatchelSaver) -> None:
    reader = SatchelSaver(Path(saver.folder("one")).parent)
    assert reader.get_tuple(CONFIG) is None and [*reader.list(None)] == []
    for number in range(3):
        put(saver, {"n": number})
        found = reader.get_tuple(CONFIG)
        assert found is not None and found.checkpoint["channel_values"] == {"n": number}
    saver.delete_thread("one")
    assert reader.get_tuple(CONFIG) is None


def test_two_threads_of_a_process_hold_a_folder_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write it for the first time."""
    made = list[str]()

    def hold(url: str, **how: Any) -> Any:
        made.append(url)
        time.sleep(0.01)
        return satchel.hold(url, **how)

    monkeypatch.setattr("satchel.adapters.held_tree.hold", hold)
    saver = SatchelSaver(tmp_path / "threads")
    config: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_id": "c"}}

    def write(number: int) -> None:
        saver.put_writes(config, [("n", number)], f"task {number}")

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(write, range(20))]) == 20
    assert len(rows(saver)) == 20 and len(made) == 1
    saver.close()


def test_a_cancelled_put_is_torn(saver: SatchelSaver) -> None:
    async def main() -> None:
        for number in range(10):
            checkpoint = empty_checkpoint()
            checkpoint |= {"channel_values": {"n": number}, "channel_versions": {"n": number}}
            task = asyncio.create_task(saver.aput(CONFIG, checkpoint, {}, {"n": number}))
            await asyncio.sleep(0.002 * (number % 3))
            task.cancel()
            await asyncio.wait([task])
        found = await saver.aget_tuple(CONFIG)
        assert found is None or found.checkpoint["channel_values"].keys() == {"n"}

    asyncio.run(main())
    for each in saver.list(CONFIG):
        assert each.checkpoint["channel_values"]["n"] == each.checkpoint["channel_versions"]["n"]


def test_turns_of_a_thread_are_told_apart(saver: SatchelSaver) -> None:
    graph = talking(0).compile(checkpointer=saver)
    for turn in (1, 1, 2, 2, 3):
        config: Any = {**CONFIG, "metadata": {"turn": turn}}
        known = saver.get_tuple(config)
        has_begun = known is not None and dict(known.metadata).get("turn") == turn
        given: Any = None if has_begun else {"messages": [HumanMessage(str(turn))]}
        graph.invoke(given, config)
    asked = [each for each in graph.get_state(CONFIG).values["messages"] if isinstance(each, HumanMessage)]
    assert [each.content for each in asked] == ["1", "2", "3"]


# Channels that keep only what was written


def _joined(state: list[str], writes: Any) -> list[str]:
    return [*state, *(each for write in writes for each in write)]


class Deltas(TypedDict):
    said: Annotated[list[str], DeltaChannel(_joined, snapshot_frequency=4)]
    n: int


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_delta_channel_is_made_from_other_writes(saver: SatchelSaver, is_pruned: bool) -> None:
    def say(state: Deltas) -> Any:
        return {"said": [f"{state['n']}"], "n": state["n"] + 1}

    def also(state: Deltas) -> Any:
        return {"said": ["and"]}

    builder = StateGraph(Deltas)
    builder.add_node("say", say)
    builder.add_node("also", also)
    builder.add_edge(START, "say")
    builder.add_edge(START, "also")
    memory = InMemorySaver()
    found: list[Any] = []
    for each in (saver, memory):
        graph = builder.compile(checkpointer=each)
        for number in range(11):
            graph.invoke({"said": [f"turn {number}"], "n": number}, CONFIG)
        if is_pruned and each is saver:
            saver.prune(["one"])
        found.append(graph.get_state(CONFIG).values["said"])
        history = each.get_delta_channel_history(config=CONFIG, channels=["said", "none"])
        assert 0 < len(history["said"]["writes"]) < 20 and history["none"]["writes"] == []
        also_async = asyncio.run(each.aget_delta_channel_history(config=CONFIG, channels=["said", "none"]))
        assert also_async == history
        found.append([[write[1:] for write in history["said"]["writes"]], history["said"].get("seed")])
    assert found[0] == found[2] and len(found[0]) == 33
    assert found[1] == found[3]
    assert json.loads(json.dumps(found[0])) == found[0]
