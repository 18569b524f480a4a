"""`satchel.adapters`: what adapters of frameworks share, and what an adapter of one's own may use, too."""

from __future__ import annotations

import asyncio
import json
import posixpath
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from pydantic import BaseModel, ConfigDict, Field
from servers import Server
from waits import HANGS, PATIENCE

import satchel
from satchel import Handle, Run, agent, run
from satchel.adapters import HeldTree, ask_about, folder_name, held_path, identity, require, virtual_path
from satchel.errors import AgentError, LeaseHeld, NoWorkspace, Refused
from satchel.results import Held
from satchel.workspace.base import check_path
from satchel.workspace.inbound import rejection

ROW = {"role": "user", "content": "hello"}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[HeldTree]:
    made = HeldTree(tmp_path / "root", kind="notes", idle=60)
    yield made
    made.release()


def add(held: Held) -> int:
    return held.append([ROW])


# Names of folders


@pytest.mark.parametrize("text", ["ada", "a-b_1", "x" * 40])
def test_a_simple_name_is_changed(text: str) -> None:
    assert folder_name(text) == text


def test_two_texts_share_a_name_or_one_can_not_be_a_name() -> None:
    texts = ["", "a", "A", "a ", "..", ".", "a/b", "a-b", "é", "e", "\ud800", "-a", "a\n", "x" * 300, "x" * 301]
    texts += [folder_name("A"), folder_name("a/b"), "Ünï/\\:*?", "satchel~1"]
    names = {folder_name(text) for text in texts}
    assert len(names) == len(texts)
    for name in names:
        assert len(name) <= 51 and name.isascii() and name == name.lower() and name.replace("-", "").isalnum()


@given(st.lists(st.text() | st.sampled_from(["%", "+", "%2", "B", ".", " ", "x" * 199, ":", ".rejected"])).map("".join))
@examples(2000)
def test_every_path_has_one_name_that_every_disk_can_hold(path: str) -> None:
    if not (name := posixpath.normpath("/" + path.lstrip("/"))).strip("/"):
        return
    kept = held_path(name)
    assert virtual_path(kept) == name
    assert check_path(kept) and not rejection.KEPT.search(kept)
    assert all(len(part.encode()) <= 210 for part in kept.split("/"))


# What identifies a call


class Client:
    pass


@dataclass
class Asked:
    text: str
    id: str
    client: Client
    more: int | None = None


class Said(BaseModel):
    model_config = ConfigDict(extra="allow")
    text: str
    id: str
    more: int | None = None
    old: str = Field("", deprecated="new")


def test_what_differs_at_each_start_identifies_a_call() -> None:
    def made(id: str) -> Any:
        seen = [Asked("a", id, Client()), Said(text="b", id=id, other={"id": "kept"}), (each for each in "ab")]
        return {"seen": tuple(seen), "kinds": {"x", "y", "z"}, 7: b"\xff", "none": None}

    found = identity(made("1"), __name__, frozenset({"id"}))
    assert found == identity(made("2"), __name__, frozenset({"id"})) != identity(made("1"))
    assert (
        json.loads(json.dumps(found))
        == found
        == {
            "seen": [{"text": "a", "client": "Client"}, {"text": "b", "old": "", "other": {"id": "kept"}}, "generator"],
            "kinds": ["x", "y", "z"],
            "7": "_w==",
            "none": None,
        }
    )


def test_a_field_of_the_users_own_class_does_not_count() -> None:
    for package in ("", "test_what", "another", f"{__name__}.deeper"):
        assert identity(Asked("a", "1", Client()), package, frozenset({"id"}))["id"] == "1"


# Held workspaces


def test_threads_hold_a_workspace_twice_or_lose_what_they_write(tree: HeldTree, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(lambda number: tree.use(add, "a", str(number % 2)), range(20))]) == 20
    assert [len(tree.read(Handle.rows, "a", name)) for name in "01"] == [10, 10]
    assert sorted(each.url for each in tree.below("a")) == [str(tmp_path / "root/a" / name) for name in "01"]


def test_who_looks_where_nothing_is_makes_something_or_fails(tree: HeldTree, tmp_path: Path) -> None:
    assert [*tree.read(Handle.rows, "a"), *tree.below("a"), *tree.below()] == []
    tree.remove("a")
    assert not (tmp_path / "root").exists()


def test_another_error_counts_as_nothing_there(tree: HeldTree, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").write_text("a file")
    with pytest.raises(satchel.UsageError, match="is a file"):
        tree.read(Handle.rows, "a")
    with pytest.raises(satchel.UsageError, match="is a file"):
        tree.below("a")


def test_one_that_another_program_has_removed_is_made_again(tree: HeldTree, tmp_path: Path) -> None:
    kept = tree.use(lambda held: held, "a")
    tree.use(add, "a")
    tree.release()
    satchel.remove(tmp_path / "root/a")
    tree.use(add, "a")
    assert len(tree.read(Handle.rows, "a")) == 1
    with pytest.raises(satchel.UsageError, match="closed"):
        kept.rows()


def test_a_released_one_is_not_left_to_others_at_once(tree: HeldTree, tmp_path: Path) -> None:
    tree.use(add, "a")
    tree.release()
    with satchel.hold(tmp_path / "root/a", kind="notes") as other:
        other.append([ROW])
    assert tree.use(lambda held: len(held.rows()), "a") == 2


def test_a_closed_tree_is_written(tree: HeldTree) -> None:
    tree.use(add, "a")
    tree.close()
    with pytest.raises(satchel.UsageError, match="closed"):
        tree.use(add, "a")
    assert len(tree.read(Handle.rows, "a")) == 1
    with pytest.raises(satchel.UsageError, match="closed"):
        tree.remove("a")


def test_a_call_that_has_begun_before_the_close_takes_it_again(
    tree: HeldTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.use(add, "a")
    exclusive = Held.exclusive

    def late(held: Held, **times: float) -> Any:  # as in a thread that nobody waits for any more
        tree.close()
        return exclusive(held, **times)

    with monkeypatch.context() as patched, pytest.raises(satchel.UsageError, match="closed"):
        patched.setattr(Held, "exclusive", late)
        tree.use(add, "a")
    with satchel.hold(tmp_path / "root/a", kind="notes", create=False) as other:
        add(other)
    assert len(tree.read(Handle.rows, "a")) == 2


def test_a_relative_root_moves_with_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tree = HeldTree("root", kind="notes", idle=0)
    monkeypatch.chdir("/")
    tree.use(add, "a")
    tree.release()
    assert (tmp_path / "root/a/workspace.yaml").is_file()


def test_two_trees_of_a_root_keep_each_other_out(tree: HeldTree, tmp_path: Path) -> None:
    """As a program makes one for each request."""
    other = HeldTree(f"{tmp_path}/root/", kind="notes", idle=60.0)
    assert tree.use(add, "a") < other.use(add, "a") < tree.use(add, "a")
    other.close()
    assert tree.use(lambda held: len(held.rows()), "a") == 3


def test_trees_of_a_root_that_wait_and_stay_for_different_times_keep_each_other_out(tmp_path: Path) -> None:
    """As a server whose requests give other times than its tasks. Those of the tree that calls count."""
    places: Any = {"root": tmp_path / "root", "kind": "notes"}
    staying, waiting = HeldTree(**places, idle=HANGS), HeldTree(**places, idle=0.0, wait=HANGS)
    assert staying.use(add, "a") < waiting.use(add, "a")  # and leaves it at once
    with satchel.hold(tmp_path / "root/a", kind="notes", wait=PATIENCE), pytest.raises(LeaseHeld):
        staying.use(add, "a")  # does not wait


def test_a_time_that_is_none_is_taken_from_a_tree_of_a_root_that_is_held(tree: HeldTree, tmp_path: Path) -> None:
    tree.use(add, "a")
    wrong: Any = {"wait": -1, "idle": "long"}
    for name in wrong:
        with pytest.raises(satchel.UsageError, match=name):
            HeldTree(tmp_path / "root", kind="notes", **{name: wrong[name]}).use(add, "a")


def test_a_call_that_waits_while_another_finds_that_it_was_removed_fails(
    tree: HeldTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.use(add, "a")
    tree.release()
    satchel.remove(tmp_path / "root/a")
    exclusive = Held.exclusive

    def late(held: Held, **times: float) -> Any:
        monkeypatch.setattr(Held, "exclusive", exclusive)
        tree.use(add, "a")
        return exclusive(held, **times)

    monkeypatch.setattr(Held, "exclusive", late)
    tree.use(add, "a")
    assert len(tree.read(Handle.rows, "a")) == 2


def test_what_misses_another_workspace_is_tried_for_ever(tree: HeldTree, tmp_path: Path) -> None:
    calls = []

    def miss(held: Held) -> Any:
        calls.append(held)
        return satchel.open(tmp_path / "no").rows()

    with pytest.raises(NoWorkspace):
        tree.use(miss, "a")
    assert len(calls) == 2


def test_a_cancelled_call_goes_on_after_that_was_told(tree: HeldTree) -> None:
    async def main() -> None:
        has_begun, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

        def work(held: Held) -> None:
            has_begun.set()
            assert may_end.wait(PATIENCE)
            has_ended.set()

        task = asyncio.create_task(tree.ause(work, "a"))
        assert await asyncio.to_thread(has_begun.wait, PATIENCE)
        task.cancel()
        asyncio.get_running_loop().call_soon(may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert has_ended.is_set()

    asyncio.run(main())


def test_one_of_another_kind_is_used(tree: HeldTree, tmp_path: Path) -> None:
    with satchel.hold(tmp_path / "root/a", kind="letters"):
        pass
    with pytest.raises(Refused, match="is held as 'letters'"):
        tree.use(add, "a")


def test_a_thread_is_lost_among_the_files_of_a_run(tmp_path: Path, workspace: Path) -> None:
    tree = HeldTree(workspace, kind="notes")
    with pytest.raises(satchel.UsageError, match=r"is a workspace, .*Name another folder"):
        tree.use(add, "a")
    with pytest.raises(Refused, match="is the run of an agent"):
        tree.use(add)
    assert not (workspace / "a").exists()


@pytest.mark.parametrize("root", [None, "", b"root", 7])
def test_what_names_no_root_becomes_the_current_folder_or_an_error_without_its_name(root: Any) -> None:
    with pytest.raises(satchel.UsageError, match="the root can't be"):
        HeldTree(root, kind="notes")


@pytest.mark.slow
def test_a_tree_in_a_bucket(moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    tree = HeldTree(moto.place() + "/", kind="notes")
    assert [*tree.read(Handle.rows, "a"), *tree.below()] == []
    tree.use(add, "a")
    assert len(tree.read(Handle.rows, "a")) == len(tree.below()) == 1
    tree.remove("a")
    assert [*tree.read(Handle.rows, "a"), *tree.below()] == []


# Questions


def asking(*args: Any, **options: Any) -> satchel.Agent[Any]:
    @agent
    async def main(run: Run) -> Any:
        answer = await ask_about("May it send?", *args, tool="send", wait_for=0, **options)
        return [answer.refusal, answer.changed, answer.arguments if answer.changed else None]

    return main


def test_changed_arguments_are_lost(workspace: Path) -> None:
    schema = {"type": "object", "properties": {"to": {"enum": ["ada", "ben"]}}}
    main = asking({"to": "ada", "n": 1}, schema=schema)
    assert run(workspace, main).status == "waiting"
    with pytest.raises(satchel.UsageError):
        satchel.open(workspace).answer("approve", "a1", arguments={"to": "eve"})
    satchel.open(workspace).answer("approve", "a1", arguments={"to": "ben"})
    assert run(workspace, main).result == ["", {"to": "ben"}, {"to": "ben", "n": 1}]


def test_a_schema_that_the_arguments_do_not_fit_fails_the_run(workspace: Path) -> None:
    assert run(workspace, asking({"to": 7}, schema={"properties": {"to": {"type": "string"}}})).status == "waiting"


def test_a_denial_does_not_say_why(workspace: Path) -> None:
    main = asking("{no JSON", can_change=False)
    assert run(workspace, main).status == "waiting"
    [question] = satchel.open(workspace).questions()
    assert question.context == {"arguments": "{no JSON"}
    satchel.open(workspace).answer("deny", "a1", note="Too late.")
    assert run(workspace, main).result[0] == "A person has denied this call. Too late."


def test_people_are_asked_without_a_run() -> None:
    with pytest.raises(AgentError, match="outside a run"):
        asyncio.run(ask_about("May it send?", {}, tool="send"))


# Versions


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("adapter", "package", "older"),
    [
        ("langgraph", "langgraph", "1.1.9"),
        ("langgraph", "langgraph-checkpoint", "4.2.9"),
        ("openai_agents", "openai-agents", "0.23.9"),
        ("claude_agent_sdk", "claude-agent-sdk", "0.2.99"),
        ("deepagents", "deepagents", "0.7.7"),
        ("pydantic_ai", "pydantic-ai-slim", "2.62.0"),
    ],
)
def test_an_older_framework_fails_somewhere_else(adapter: str, package: str, older: str) -> None:
    code = f"""
import importlib.metadata as metadata, sys
real = metadata.version
metadata.version = lambda name: {older!r} if name == {package!r} else real(name)
import satchel.adapters.{adapter}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert f"satchel.adapters.{adapter} needs {package} " in last and f"or newer, and {older} is installed" in last
    assert f"Run: pip install '{package}>=" in last


@pytest.mark.parametrize(("least", "is_enough"), [("1.2", True), ("1.10.0", False), ("1.2.3", True), ("1.2.4", False)])
def test_versions_are_compared_as_texts(least: str, is_enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.adapters.held_tree.version", lambda name: "1.2.3rc1")
    if is_enough:
        require("adapter", "package", least)
    else:
        with pytest.raises(ImportError, match=f"adapter needs package {least} or newer"):
            require("adapter", "package", least)


def test_a_missing_framework_is_not_named() -> None:
    with pytest.raises(ImportError, match=r"^adapter needs no-such-package 1\.0 or newer\. Run: pip install"):
        require("adapter", "no-such-package", "1.0")
