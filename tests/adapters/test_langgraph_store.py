"""`SatchelStore` beside LangGraph's own store in memory."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
import warm
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import Item
from langgraph.store.memory import InMemoryStore

import satchel
from satchel.adapters.langgraph import SatchelStore
from satchel.errors import UsageError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SatchelStore]:
    made = SatchelStore(tmp_path / "memory")
    yield made
    made.close()


def content(found: Any) -> Any:
    if isinstance(found, Item):
        return found.namespace, found.key, found.value
    return sorted(map(content, found), key=repr) if isinstance(found, list) else found


WORDS = ["ada", "Ada", "é", "a b", "a-b", "x" * 300, "con", "..", "a/b", "ada-0123456789"]


@pytest.mark.parametrize("seed", range(4))
def test_it_answers_what_the_store_in_memory_does_not(store: SatchelStore, seed: int) -> None:
    chance, memory = random.Random(seed), InMemoryStore()
    labels = [word for word in WORDS if "." not in word]
    for _ in range(60):
        namespace = tuple(chance.choice(labels) for _ in range(chance.choice((1, 2, 3))))
        key, value = chance.choice(WORDS), {"n": chance.randrange(3), "said": chance.choice(WORDS)}
        prefix = namespace[: chance.randrange(3)]
        calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
            ("put", (namespace, key, value), {}),
            ("put", (namespace, key, value), {}),
            ("delete", (namespace, key), {}),
            ("get", (namespace, key), {}),
            ("search", (prefix,), {"limit": 100}),
            ("search", (prefix,), {"filter": {"n": {"$gte": 1}}, "limit": 100}),
            ("list_namespaces", (), {"prefix": prefix, "max_depth": 2}),
            ("list_namespaces", (), {"suffix": namespace[-1:]}),
        ]
        method, args, kwargs = chance.choice(calls)
        expected, found = (content(getattr(each, method)(*args, **kwargs)) for each in (memory, store))
        if isinstance(expected, list) and expected and isinstance(expected[0][0], str):
            expected = [each for each in expected if each in found]  # it also lists namespaces that are empty again
        assert found == expected


def test_an_item_is_no_file_that_a_person_can_correct(store: SatchelStore) -> None:
    store.put(("people", "Ada"), "profile", {"likes": ["tea"], "name": "Ada é"})
    before = store.get(("people", "Ada"), "profile")
    assert before is not None
    store.close()
    [file] = Path(store._tree.root, "files").rglob("*.json")
    assert file.relative_to(Path(store._tree.root, "files")).parts[0] == "people" and file.name == "profile.json"
    text = file.read_text()
    assert '"name": "Ada é"' in text and json.loads(text)["namespace"] == ["people", "Ada"]
    file.write_text(text.replace("tea", "coffee"))
    again = SatchelStore(store._tree.root)
    again.put(("people", "Grace"), "profile", {})
    found = again.get(("people", "Ada"), "profile")
    assert found is not None and found.value["likes"] == ["coffee"]
    assert found.created_at == before.created_at and found.updated_at > before.updated_at
    again.put(("people", "Ada"), "profile", {"likes": []})
    found = again.get(("people", "Ada"), "profile")
    assert found is not None and found.created_at == before.created_at
    again.close()


def test_a_value_that_is_no_json_is_changed(store: SatchelStore) -> None:
    for value in ({"n": float("nan")}, {"n": object()}):
        with pytest.raises((ValueError, TypeError)):
            store.put(("a",), "b", value)
    assert store.get(("a",), "b") is None


def test_a_file_that_is_no_item_is_taken_for_none(store: SatchelStore) -> None:
    store.put(("a",), "b", {})
    store._tree.use(lambda held: held.put("a/c.json", "{"))
    with pytest.raises(UsageError, match=r"files/a/c.json: is no item of LangGraph"):
        store.search(("a",))
    assert store.get(("a",), "b") is not None


_OTHER = """
import sys
from satchel.adapters.langgraph import SatchelStore
store = SatchelStore(sys.argv[1])
for number in range(int(sys.argv[2])):
    store.put(("from", sys.argv[3]), str(number), {"n": number})
print("done", flush=True)
sys.stdin.readline()
"""


def test_two_processes_write_one_after_the_other(store: SatchelStore) -> None:
    words = [sys.executable, "-c", _OTHER, store._tree.root, "5", "other"]
    with warm.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        for number in range(5):
            store.put(("from", "here"), str(number), {"n": number})
        assert other.stdin and other.stdout and other.stdout.readline() == "done\n"
        store.put(("from", "here"), "last", {})
        assert len(store.search(("from",), limit=100)) == 11
        other.stdin.write("\n")


def test_a_graph_finds_nothing_of_another_thread(store: SatchelStore) -> None:
    class State(TypedDict, total=False):
        seen: list[str]

    async def remember(state: State, runtime: Runtime[Any]) -> State:
        assert runtime.store is not None
        seen = [item.key for item in await runtime.store.asearch(("seen",))]
        await runtime.store.aput(("seen",), f"thread {len(seen)}", {})
        return {"seen": sorted(seen)}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    graph = builder.compile(store=store)
    found = [asyncio.run(graph.ainvoke({}))["seen"] for _ in range(3)]
    assert found == [[], ["thread 0"], ["thread 0", "thread 1"]]
    assert satchel.open(store._tree.root).status().state == "held"
