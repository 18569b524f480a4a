"""The files and runs of deep agents. The first part is the contract that deepagents' own tests set for its backends,
apart from what is ripgrep's and a disk's own; the others are what its users have reported."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import warm
from deep_models import Answering, outputs, rounds
from deepagents import FilesystemPermission, create_deep_agent
from deepagents.backends import CompositeBackend, FilesystemBackend, LocalShellBackend, StateBackend, utils
from deepagents.backends.protocol import BackendProtocol
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt
from properties import examples
from pydantic import BaseModel
from servers import Server
from waits import HANGS, PATIENCE

import satchel
from satchel import Run, agent, effect, run
from satchel.adapters.deepagents import SatchelBackend, SatchelMiddleware, ainvoke, backend, file_texts
from satchel.errors import LeaseHeld

CRLF = "one\r\ntwo\r\nthree\r\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def files(place: Path) -> Iterator[SatchelBackend]:
    found = SatchelBackend(place)
    yield found
    found.close()


def content(files: BackendProtocol, path: str) -> bytes | None:
    return files.download_files([path])[0].content


def until(holds: Callable[[], object]) -> None:
    """What people save, and files for people, come a moment later."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def paths(found: Any) -> list[str]:
    assert found.error is None
    return [each["path"] for each in (found.entries if hasattr(found, "entries") else found.matches)]


# The contract of a backend


def test_every_method_of_the_protocol_is_its_own() -> None:
    names = [name for name in vars(BackendProtocol) if not name.startswith("_")]
    assert len(names) == 18 and all(
        getattr(SatchelBackend, name) is not getattr(BackendProtocol, name) for name in names
    )


def test_a_file_is_written_read_edited_and_deleted(files: SatchelBackend) -> None:
    assert files.write("/notes/a b/ü.md", "one\ntwo\n").path == "/notes/a b/ü.md"
    assert files.write("/notes/a b/ü.md", "one\ntwo\nthree").error is None, "it replaces the whole file"
    found = files.read("/notes/a b/ü.md", 1, 1)
    assert found.file_data == {"content": "two\n", "encoding": "utf-8"}
    assert (found.start_line, found.end_line, found.next_offset, found.total_lines) == (2, 2, 2, 3)
    assert files.edit("/notes/a b/ü.md", "two", "2").occurrences == 1
    assert content(files, "/notes/a b/ü.md") == b"one\n2\nthree"
    assert files.delete("/notes/a b/ü.md").path == "/notes/a b/ü.md"
    assert files.read("/notes/a b/ü.md").error == "File '/notes/a b/ü.md' not found"
    assert files.edit("/notes/a b/ü.md", "2", "3").error and files.delete("/notes/a b/ü.md").error


def test_async_methods_do_the_same(files: SatchelBackend) -> None:
    async def use() -> None:
        assert (await files.awrite("/a/x.md", "find me")).path == "/a/x.md"
        assert (await files.aedit("/a/x.md", "me", "it", replace_all=True)).occurrences == 1
        assert (await files.aread("/a/x.md", limit=5)).file_data == {"content": "find it", "encoding": "utf-8"}
        assert paths(await files.als("/")) == ["/a/"] and paths(await files.aglob("*.md")) == ["/a/x.md"]
        assert (await files.agrep("it", glob="*.md", max_count=9)).matches == [
            {"path": "/a/x.md", "line": 1, "text": "find it"}
        ]
        assert [each.error for each in await files.aupload_files([("/b", b"\xff"), ("/../c", b"")])] == [
            None,
            "invalid_path",
        ]
        assert [each.content for each in await files.adownload_files(["/b", "/c"])] == [b"\xff", None]
        assert (await files.adelete("/a")).path == "/a" and paths(await files.als("/")) == ["/b"]

    asyncio.run(use())


def test_folders_are_listed_and_deleted_with_what_is_in_them(files: SatchelBackend) -> None:
    for path in ("/a.md", "/src/b.py", "/src/deep/c.py", "/srcs/d.py"):
        files.write(path, "x")
    assert paths(files.ls("/")) == ["/a.md", "/src/", "/srcs/"] and paths(files.ls("/src/")) == [
        "/src/b.py",
        "/src/deep/",
    ]
    assert files.ls("/missing/").error == "Path '/missing/': path_not_found"
    assert files.ls("/a.md").error == "Path '/a.md': not_a_directory"
    assert files.delete("/src").error is None and paths(files.ls("/")) == ["/a.md", "/srcs/"]


def test_a_file_and_a_folder_can_not_have_one_name(files: SatchelBackend) -> None:
    files.write("/a/b", "x")
    assert "is_directory" in str(files.write("/a", "x").error) and "is_directory" in str(files.write("/", "x").error)
    assert "invalid_path" in str(files.write("/a/b/c", "x").error)
    assert [each.error for each in files.upload_files([("/a", b""), ("/a/b/c", b""), ("/d", b"")])] == [
        "is_directory",
        "invalid_path",
        None,
    ]
    errors = [each.error for each in files.download_files(["/a", "/a/b/c", "/../x", "/d"])]
    assert errors == ["is_directory", "file_not_found", "invalid_path", None]


def test_a_path_that_leads_out_is_refused(files: SatchelBackend) -> None:
    for call in (files.read, files.ls, files.delete):
        with pytest.raises(ValueError, match="traversal"):
            call("/../a.md")
    assert files.write("/a/./b//c.md", "x").error is None and paths(files.glob("**/*")) == ["/a/b/c.md"]


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.py", None, ["/src/app/main.py", "/top.py"]),
        ("/*.py", "/", ["/top.py"]),
        ("**/*.py", "/", ["/src/app/main.py", "/top.py"]),
        ("app/*.py", "/src", ["/src/app/main.py"]),
        ("*.{md,py}", "/src/", ["/src/app/main.py"]),
        ("*.py", "/top.py", ["/top.py"]),
        ("*.py", "/missing", []),
        ("*.yml", None, ["/.hidden/ci.yml"]),
        ("**/*.yml", None, []),
    ],
)
def test_globs_include_what_they_do_for_other_backends(
    files: SatchelBackend, glob: str, path: str | None, expected: list[str]
) -> None:
    for name in ("/src/app/main.py", "/top.py", "/read.md", "/.hidden/ci.yml"):
        files.write(name, "import os\nimport sys\n")
    assert paths(files.glob(glob, path)) == expected
    assert paths(files.grep("import os", path, glob)) == expected


def test_grep_is_literal_and_bounded(files: SatchelBackend) -> None:
    files.write("/a.md", "a.b\r\na|b\r\n[x\r\n")
    files.write("/b.md", "a|b\n")
    files.upload_files([("/c.md", b"\xff\0a|b"), ("/d.png", b"a|b")])
    assert files.grep("a|b").matches == [
        {"path": "/a.md", "line": 2, "text": "a|b"},
        {"path": "/b.md", "line": 1, "text": "a|b"},
    ]
    for most, truncated in ((1, True), (2, False), (None, False)):
        found = files.grep("a|b", max_count=most)
        assert found.truncated is truncated and len(found.matches or ()) == (most or 2)
    assert not files.grep("x", glob="../*").matches and not files.glob("../*").matches


def test_a_wrong_byte_hides_no_line_of_a_log_from_a_search(files: SatchelBackend) -> None:
    files.upload_files([("/a.log", b"one error\n\xff error\r\nfine\nlast error")])
    assert files.grep("error").matches == [
        {"path": "/a.log", "line": 1, "text": "one error"},
        {"path": "/a.log", "line": 2, "text": "\ufffd error"},
        {"path": "/a.log", "line": 4, "text": "last error"},
    ]


@pytest.mark.parametrize(("lines", "most"), [(0, None), (1, None), (2, 1), (9, 2)])
def test_lines_around_a_match_are_those_that_its_own_backend_shows(
    files: SatchelBackend, tmp_path: Path, lines: int, most: int | None
) -> None:
    own = FilesystemBackend(tmp_path / "own", virtual_mode=True)
    for each in (files, own):
        each.write("/a.md", "zero\r\none hit\r\ntwo hit\r\nthree\r\nfour\r\nfive\r\nsix hit")
    found, expected = (each.grep("hit", path="/", max_count=most, context_lines=lines) for each in (files, own))
    assert found == expected
    later = asyncio.run(files.agrep("hit", max_count=most, context_lines=lines))
    assert later == found


def test_a_negative_number_of_lines_around_a_match_is_refused(files: SatchelBackend) -> None:
    with pytest.raises(ValueError, match="context_lines"):
        files.grep("hit", context_lines=-1)


@pytest.mark.parametrize(("offset", "limit"), [(0, 0), (-5, 1), (9, 1), (0, -3)])
def test_odd_windows_are_no_failure(files: SatchelBackend, offset: int, limit: int) -> None:
    files.write("/a.md", "one\n")
    found = files.read("/a.md", offset, limit)
    assert bool(found.error) == (offset == 9) and found.no_lines_requested == (limit <= 0)


def test_what_is_no_text_is_read_as_base64_or_not_at_all(files: SatchelBackend) -> None:
    files.upload_files([("/a.PNG", b"\x89PNG"), ("/b.txt", "ä".encode("latin-1"))])
    assert files.read("/a.PNG").file_data == {"content": "iVBORw==", "encoding": "base64"}
    assert "utf-8" in str(files.read("/b.txt").error) and "utf-8" in str(files.edit("/b.txt", "a", "b").error)
    assert "surrogates" in str(files.write("/c.txt", "\ud800").error)


def test_a_path_with_half_a_character_ends_the_agent(files: SatchelBackend, workspace: Path) -> None:
    @agent
    async def main(run: Run) -> Any:
        path = "/\ud800.md"
        return [(await files.awrite(path, "x")).error, (await files.aread(path)).error]

    result = run(workspace, main).result
    assert "invalid_path" in result[0] and "not found" in result[1]
    assert files.write("/\ud800.md", "x").error == "Error writing file '/\ud800.md': invalid_path"


def test_the_kinds_of_files_are_those_of_deepagents() -> None:
    for ending in {*utils._EXTENSION_TO_FILE_TYPE, ".mkv", ".md", ".py", ".svg", ".ts", ".bin", ""}:
        is_text = utils._get_backend_read_file_type(f"/a{ending}") == "text"
        assert bool(file_texts.BINARY.search(f"/a{ending}")) is not is_text, ending


def test_a_search_lists_all_files_for_each_of_them(files: SatchelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    files.upload_files([(f"/{number}.md", b"hit") for number in range(5)])
    listed: list[str] = []
    monkeypatch.setattr(backend, "virtual_path", lambda path: listed.append(path) or f"/{path}")
    assert len(files.grep("hit").matches or ()) == len(listed) == 5


# CRLF


def test_what_was_read_can_be_edited_and_the_rest_stays_byte_for_byte(files: SatchelBackend) -> None:
    """As langchain-ai/deepagents#5840, #5783, #2880."""
    files.write("/a.md", CRLF)
    shown: Any = files.read("/a.md").file_data
    assert shown["content"] == "one\ntwo\nthree\n"
    assert files.edit("/a.md", "one\ntwo\n", "1\n2\n2a\n").error is None
    assert content(files, "/a.md") == b"1\r\n2\r\n2a\r\nthree\r\n"


def test_an_offload_adds_to_what_was_downloaded(files: SatchelBackend) -> None:
    """As langchain-ai/deepagents#2247."""
    files.write("/history.md", CRLF)
    before = (content(files, "/history.md") or b"").decode()
    assert files.edit("/history.md", before, before + "four\n").error is None
    assert content(files, "/history.md") == b"one\r\ntwo\r\nthree\r\nfour\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\nb\n", "a\r\nb\r\n", "c\r\n", "c\n"),
        ("a\r\nb\n", "b", "b\nc", "a\r\nb\nc\n"),
        ("a\r\nb\n", "a", "a\nc", "a\r\nc\r\nb\n"),
        ("a\r\nb\nc\r\n", "b\nc\n", "x\ny\n", "a\r\nx\ny\r\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a\rb\r\n", "a\nb", "c", "c\r\n"),
    ],
)
def test_new_lines_end_as_those_that_they_replace(text: str, old: str, new: str, expected: str) -> None:
    assert file_texts.replaced(text, old, new, replace_all=False) == (expected, 1)


@given(st.text("ab\r\n"), st.text("ab\n", min_size=1), st.text("ab\n"))
@examples(500)
def test_an_edit_does_to_the_lines_what_it_does_for_lf(text: str, old: str, new: str) -> None:
    def lf(each: str) -> str:
        return each.replace("\r\n", "\n").replace("\r", "\n")

    expected, found = lf(text).replace(old, new), file_texts.replaced(text, old, new, replace_all=True)
    if isinstance(found, str):
        assert old not in lf(text)
    else:
        # A lone CR and an LF that an edit brings together are one end of a line.
        assert found[0].replace("\r", "").replace("\n", "") == expected.replace("\n", "")
        assert "\r" in text or found[0] == expected
    untouched = file_texts.replaced(text, "a", "a", replace_all=True)
    assert isinstance(untouched, str) or untouched[0] == text


# Names


def test_names_that_no_disk_holds_are_kept(files: SatchelBackend, place: Path) -> None:
    names = [
        "/a:b?.md",
        "/CON .",
        "/" + "long" * 100 + ".md",
        "/50%25.md",
        "/a.rejected.md",
        "/tab\there",
        "/back\\slash",
    ]
    for name in names:
        assert files.write(name, name).path == name
    files.close()
    again = SatchelBackend(place)
    assert sorted(paths(again.glob("*"))) == sorted(names)
    assert [content(again, name) for name in names] == [name.encode() for name in names]
    assert "invalid_path" in str(again.write("/" + "x" * 900, "").error) and again.read("/" + "x" * 900).error
    again.close()
    assert (place / "files/a%3Ab%3F.md").exists() and (place / "files/50%2525.md").exists()


def test_a_file_that_a_person_has_made_is_found_by_its_own_name(files: SatchelBackend, place: Path) -> None:
    files.write("/a", "")
    until((place / "files/a").exists)
    (place / "files/x%41%3a.md").write_text("by hand")
    until(lambda: paths(files.glob("*.md")) == ["/x%41%3a.md"])
    assert content(files, "/x%41%3a.md") == b"by hand"
    assert files.edit("/x%41%3a.md", "hand", "me").occurrences == 1


# Several writers, people, versions


def test_parallel_edits_of_one_file_all_count(files: SatchelBackend) -> None:
    """As langchain-ai/deepagents#6297."""
    files.write("/a.md", "".join(f"line {n}.\n" for n in range(20)))
    edits = [threading.Thread(target=files.edit, args=("/a.md", f"line {n}.", f"done {n}.")) for n in range(20)]
    for each in edits:
        each.start()
    for each in edits:
        each.join()
    assert content(files, "/a.md") == "".join(f"done {n}.\n" for n in range(20)).encode()


def test_an_edit_is_made_on_what_a_person_has_saved_meanwhile(files: SatchelBackend, place: Path) -> None:
    files.write("/a.md", "one\ntwo\n")
    until((place / "files/a.md").exists)
    (place / "files/a.md").write_text("one\ntwo\nby hand\n")
    until(lambda: b"by hand" in (content(files, "/a.md") or b""))
    assert files.edit("/a.md", "two", "2").error is None
    assert content(files, "/a.md") == b"one\n2\nby hand\n"


def test_an_edit_that_loses_a_race_is_made_again(files: SatchelBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("/a.md", "one\ntwo\n")
    held = files._tree.use(lambda held: held)
    real, others = held.put, [("a.md", "ONE\ntwo\n")]

    def put(path: str, data: Any, **more: Any) -> int:
        while others:
            real(*others.pop())
        return real(path, data, **more)

    monkeypatch.setattr(held, "put", put)
    assert files.edit("/a.md", "two", "2").error is None
    assert content(files, "/a.md") == b"ONE\n2\n"


def test_there_is_one_writer_and_another_waits_for_it(place: Path) -> None:
    other = satchel.hold(place, kind="deepagents", idle=HANGS)  # as another program
    other.put("a.md", "one")
    hasty, patient = SatchelBackend(place, wait=0), SatchelBackend(place, wait=PATIENCE)
    with pytest.raises(LeaseHeld):
        hasty.edit("/a.md", "one", "two")
    threading.Timer(0.3, other.close).start()
    assert patient.edit("/a.md", "one", "two").occurrences == 1
    patient.close()


def test_a_backend_that_is_made_for_each_request_waits_for_the_one_before(files: SatchelBackend, place: Path) -> None:
    files.write("/a.md", "one")
    other = SatchelBackend(place)
    assert other.edit("/a.md", "one", "two").occurrences == 1
    other.close()
    assert files.edit("/a.md", "two", "three").occurrences == 1


def test_versions_blame_and_difference_of_virtual_files(files: SatchelBackend, place: Path) -> None:
    files.write("/notes/a.md", "one\ntwo\n")
    files.edit("/notes/a.md", "two", "2")
    files.close()
    said = [
        warm.run([sys.executable, "-m", "satchel", *words], capture_output=True, text=True, check=True).stdout
        for words in (["blame", str(place), "files/notes/a.md"], ["diff", str(place), "2", "3"], ["log", str(place)])
    ]
    assert "one" in said[0] and "2" in said[0]
    assert "files/notes/a.md" in said[1] and "-two" in said[1] and "+2" in said[1]
    assert said[2].count("files/notes/a.md") == 2


def test_it_is_one_of_several_backends(files: SatchelBackend) -> None:
    both = CompositeBackend(StateBackend(), {"/memories/": files})
    assert both.write("/memories/a.md", "x").error is None
    assert content(files, "/a.md") == b"x" and paths(both.ls("/memories/")) == ["/memories/a.md"]


def test_writers_of_several_processes_lose_nothing(place: Path) -> None:
    start = SatchelBackend(place)
    start.write("/a.md", "".join(f"{line:02}: open\n" for line in range(12)))
    start.close()
    code = """
import deepagents, sys
from satchel.adapters.deepagents import SatchelBackend

files = SatchelBackend(sys.argv[1], wait=100, idle=0.01)
for line in range(int(sys.argv[2]), 12, 3):
    print(files.edit("/a.md", f"{line:02}: open\\n", f"{line:02}: done\\n").error)
files.close()
"""
    command = [sys.executable, "-c", code, str(place)]
    writers = [warm.Popen([*command, str(number)], stdout=-1, text=True) for number in range(3)]
    assert [each.communicate()[0] for each in writers] == ["None\n" * 4] * 3
    file = satchel.open(place).held_file("a.md")
    assert file and file.text == "".join(f"{line:02}: done\n" for line in range(12))


def test_the_files_may_lie_in_a_bucket(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    seaweedfs.client.create_bucket(Bucket="deep-files")
    files = SatchelBackend("s3://deep-files/memory")
    assert files.write("/notes/a b/ü?.md", CRLF).error is None
    assert files.edit("/notes/a b/ü?.md", "one\ntwo", "1\n2").error is None
    files.close()
    again = SatchelBackend("s3://deep-files/memory")
    assert content(again, "/notes/a b/ü?.md") == b"1\r\n2\r\nthree\r\n" and paths(again.glob("*.md")) == [
        "/notes/a b/ü?.md"
    ]
    assert again.delete("/notes").error is None and paths(again.ls("/")) == []
    again.close()


# Agents


class Story:
    """A deep agent and its run, whose agent function is entered until it has ended."""

    def __init__(self, workspace: Path, files: SatchelBackend):
        self.workspace, self.files, self.model, self.called = workspace, files, Answering(answer=str), list[str]()
        self.model.asked = []

    def tools(self) -> list[Any]:
        @tool
        def look(of: str) -> str:
            """Look at it."""
            self.called.append(f"look {of}")
            return of.upper()

        @tool
        @effect
        async def send(to: str) -> str:
            """Send it."""
            self.called.append(f"send {to}")
            return f"sent to {to}"

        return [look, send]

    def make(self, *turns: Any, **options: Any) -> Any:
        self.model.answer = rounds(*turns)
        durable = [SatchelMiddleware(todos=self.files), TodoListMiddleware()]
        given = {"tools": self.tools(), "backend": self.files, "middleware": durable, "checkpointer": InMemorySaver()}
        return create_deep_agent(self.model, **{**given, **options})

    def run(self, helper: Any, **options: Any) -> Any:
        @agent
        async def main(run: Run[Any]) -> Any:
            found = await ainvoke(helper, {"messages": [("user", "Go")]}, wait_for=0)
            structured = found.get("structured_response")
            return structured.model_dump() if structured else outputs(found["messages"])

        return run(self.workspace, main, **options)

    def question(self) -> Any:
        [found] = satchel.open(self.workspace).questions()
        return found

    def answer(self, choice: str, **options: Any) -> None:
        satchel.open(self.workspace).answer(choice, **options)


@pytest.fixture
def story(workspace: Path, files: SatchelBackend) -> Story:
    return Story(workspace, files)


def test_an_agent_works_as_ever_outside_a_run(story: Story) -> None:
    write = ("write_file", {"file_path": "/a.md", "content": "x"})
    helper = story.make([write, ("look", {"of": "a"}), ("write_todos", {"todos": []})])
    assert (
        outputs(helper.invoke({"messages": [("user", "Go")]}, {"configurable": {"thread_id": "1"}})["messages"])[1]
        == "A"
    )
    asked = {"messages": [("user", "Go")]}
    assert asyncio.run(ainvoke(helper, asked, {"configurable": {"thread_id": "2"}}))["messages"]
    assert content(story.files, "/a.md") == b"x" and story.called == ["look a", "look a"]


def test_no_edit_of_an_agent_is_lost_without_a_word(story: Story) -> None:
    """As langchain-ai/deepagents#6297. Newer versions refuse the second edit of a turn."""
    story.files.write("/a.md", "one\ntwo\n")
    pairs = {"one": "1", "two": "2"}
    helper = story.make(
        [("edit_file", {"file_path": "/a.md", "old_string": old, "new_string": pairs[old]}) for old in pairs]
    )
    done = asyncio.run(helper.ainvoke({"messages": [("user", "Go")]}, {"configurable": {"thread_id": "1"}}))
    text = (content(story.files, "/a.md") or b"").decode()
    assert ["Error" not in told for told in outputs(done["messages"])] == [pairs[old] in text for old in pairs]


def test_parallel_subagents_lose_no_edit(story: Story) -> None:
    story.files.write("/a.md", "".join(f"{name}: open\n" for name in "abcd"))
    tasks = [("task", {"description": name, "subagent_type": "general-purpose"}) for name in "abcd"]
    helper, main = story.make(), rounds(tasks)

    def answer(messages: Any) -> Any:
        name = next(str(each.content) for each in messages if each.type == "human")
        edit = {"file_path": "/a.md", "old_string": f"{name}: open", "new_string": f"{name}: done"}
        return main(messages) if name == "Go" else rounds([("edit_file", edit)])(messages)

    story.model.answer = answer
    assert story.run(helper).status == "completed"
    assert content(story.files, "/a.md") == "".join(f"{name}: done\n" for name in "abcd").encode()


def test_a_sync_call_in_a_run_says_what_to_call(story: Story) -> None:
    helper = story.make([("look", {"of": "a"})])

    @agent
    async def main(run: Run[Any]) -> Any:
        helper.invoke({"messages": [("user", "Go")]}, {"configurable": {"thread_id": "1"}})

    assert "await ainvoke" in str(run(story.workspace, main).error)


def test_another_saver_in_a_run_is_refused(story: Story) -> None:
    with SqliteSaver.from_conn_string(":memory:") as saver:
        assert "Give it an InMemorySaver" in str(story.run(story.make([], checkpointer=saver)).error)


def test_an_agent_that_wants_no_saver_is_refused(story: Story) -> None:
    assert story.run(story.make([("look", {"of": "a"})], checkpointer=False)).result == ["A"]


def test_a_tool_that_returns_a_command_says_so(story: Story) -> None:
    @tool
    async def steer(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Steer the graph."""
        return Command(update={"messages": [ToolMessage("", tool_call_id=tool_call_id)]})

    assert "metadata" in str(story.run(story.make([("steer", {})], tools=[steer])).error)


def test_structured_output_comes_back_as_its_type(story: Story) -> None:
    class Weather(BaseModel):
        sun: bool

    helper = story.make([("Weather", {"sun": True})], response_format=Weather)
    assert story.run(helper).result == {"sun": True}


@pytest.mark.parametrize(
    ("by", "choice", "changes", "expected", "called"),
    [
        ("the agent", "approve", {}, "sent to ann", ["send ann"]),
        ("the agent", "deny", {"note": "not her"}, "not her", []),
        ("a subagent", "approve", {"arguments": {"to": "bob"}}, "sent to bob", ["send bob"]),
    ],
)
def test_people_answer_interrupts(
    story: Story, choice: str, changes: Any, expected: str, called: list[str], by: str
) -> None:
    """As langchain-ai/deepagents#554, #420: edits and rejections in a subagent, and tools next to it run once."""
    call = ("send", {"to": "ann"})
    if by == "a subagent":
        turns = rounds([("task", {"description": "send", "subagent_type": "general-purpose"}), ("look", {"of": "a"})])
        helper = story.make(interrupt_on={"send": True})
        sub = rounds([("look", {"of": "b"})], [call])
        story.model.answer = lambda messages: (sub if messages[0].content == "send" or _asks(messages) else turns)(
            messages
        )
    else:
        helper = story.make([call, ("look", {"of": "a"})], interrupt_on={"send": True})
    assert story.run(helper).status == "waiting"
    assert story.question().arguments == {"to": "ann"} and story.question().text == "May the agent call send?"
    story.answer(choice, **changes)
    done = story.run(helper)
    assert done.status == "completed" and expected in json.dumps(done.result), done
    looked = ["look a", "look b"] if by == "a subagent" else ["look a"]
    assert sorted(story.called) == [*looked, *called]
    requests = len(story.model.asked)
    assert requests == (5 if by == "a subagent" else 2), "no request to the model is repeated"


def _asks(messages: Any) -> bool:
    return any(each.type == "human" and each.content == "send" for each in messages)


def test_a_call_for_each_question(story: Story) -> None:
    helper = story.make([("send", {"to": "ann"}), ("send", {"to": "bob"})], interrupt_on={"send": True})
    assert story.run(helper).status == "waiting"
    for each in satchel.open(story.workspace).questions():
        satchel.open(story.workspace).answer("approve", each.id)
    assert story.run(helper).status == "completed" and sorted(story.called) == ["send ann", "send bob"]


def test_a_path_that_needs_permission_is_a_question(story: Story) -> None:
    rule = FilesystemPermission(operations=["write"], paths=["/private/**"], mode="interrupt")
    writes = [("write_file", {"file_path": path, "content": "x"}) for path in ("/a.md", "/private/b.md")]
    helper = story.make(*[[each] for each in writes], permissions=[rule])
    assert story.run(helper).status == "waiting"
    assert story.question().arguments["file_path"] == "/private/b.md"
    story.answer("approve")
    assert story.run(helper).status == "completed" and content(story.files, "/private/b.md") == b"x"


def test_a_tool_that_is_approved_for_good_is_not_asked_about_again(story: Story) -> None:
    allowed: Any = {"send": {"allowed_decisions": ["approve", "reject"]}}
    helper = story.make([("send", {"to": "ann"})], [("send", {"to": "bob"})], interrupt_on=allowed)
    assert story.run(helper).status == "waiting"
    story.answer("approve", standing=True)
    assert story.run(helper).status == "completed" and story.called == ["send ann", "send bob"]


def test_a_question_that_only_a_person_can_answer(story: Story) -> None:
    helper = story.make([("look", {"of": "a"})], interrupt_on={"look": {"allowed_decisions": ["respond"]}})
    assert story.run(helper).status == "waiting"
    story.answer("I see a cat")
    assert story.run(helper).result == ["I see a cat"] and story.called == []


def test_a_subagent_of_your_own_is_durable_with_the_middleware(story: Story) -> None:
    helper = story.make(
        interrupt_on={"send": True},
        subagents=[{"name": "sub", "description": "d", "system_prompt": "p", "middleware": [SatchelMiddleware()]}],
    )
    turns, sub = rounds([("task", {"description": "send", "subagent_type": "sub"})]), rounds([("send", {"to": "ann"})])
    story.model.answer = lambda messages: (sub if _asks(messages) else turns)(messages)
    assert story.run(helper).status == "waiting"
    story.answer("approve")
    assert story.run(helper).status == "completed" and story.called == ["send ann"] and len(story.model.asked) == 4


def test_a_command_of_a_sandbox_is_a_step(story: Story, tmp_path: Path) -> None:
    (tmp_path / "shell").mkdir()
    shell = LocalShellBackend(tmp_path / "shell", virtual_mode=True)
    helper = story.make(
        [("execute", {"command": "echo done >> log.txt"})],
        [("send", {"to": "ann"})],
        backend=shell,
        interrupt_on={"send": True},
    )
    assert story.run(helper).status == "waiting"
    story.answer("approve")
    assert story.run(helper).status == "completed" and (tmp_path / "shell/log.txt").read_text() == "done\n"


def test_a_tool_may_ask_itself(story: Story) -> None:
    @tool
    async def choose() -> str:
        """Ask the person twice."""
        story.called.append("choose")
        which, size = interrupt({"which": ["red", "blue"]}), interrupt("How large?")
        return f"{which}, {size}"

    helper = story.make([("choose", {}), ("look", {"of": "a"})], tools=[choose, *story.tools()])
    for answer in ("blue", "7 m"):
        assert story.run(helper).status == "waiting"
        story.answer(answer)
    assert story.run(helper).result == ["blue, 7 m", "A"] and story.called.count("look a") == 1


def test_a_pause_stops_parallel_tools_and_the_next_start_goes_on(story: Story) -> None:
    """LangGraph passes the stop of one task on, and takes none for a failure."""

    begun = asyncio.Event()

    @tool
    async def stop() -> str:
        """Pause the run."""
        await begun.wait()  # a call that has not begun would wait for the next start
        story.called.append("stop")
        (story.workspace / "pause.yaml").write_text("reason: a look\n")
        await asyncio.to_thread(until, is_noticed)
        return "stopped"

    @tool
    async def slow() -> str:
        """Take its time."""
        begun.set()
        await asyncio.to_thread(until, is_noticed)
        story.called.append("slow")
        return "done"

    def is_noticed() -> object:
        return [*satchel.open(story.workspace).history.log(type="pause.requested")]

    helper = story.make([("stop", {}), ("slow", {})], [("look", {"of": "a"})], tools=[stop, slow, *story.tools()])
    paused = story.run(helper)
    assert paused.status == "paused" and story.called == ["stop", "slow"], paused
    assert story.run(helper, wake=True).result == ["stopped", "done", "A"] and story.called == [
        "stop",
        "slow",
        "look a",
    ]


def test_todos_are_a_file_that_a_person_may_change(story: Story, place: Path) -> None:
    def todos(*marks: str) -> Any:
        names = zip(("find", "send"), marks, strict=True)
        return ("write_todos", {"todos": [{"content": name, "status": status} for name, status in names]})

    lists: list[Any] = []

    @tool
    async def person() -> str:
        """A person changes the list."""
        shown = place / "files/todo.md"
        await asyncio.to_thread(until, shown.exists)
        lists.append(shown.read_text())
        shown.write_text("- [/] find\n- [ ] send to bob\n")
        await asyncio.to_thread(until, lambda: b"bob" in (content(story.files, "/todo.md") or b""))
        return "done"

    again = todos("completed", "pending")
    helper = story.make([todos("in_progress", "pending")], [("person", {})], [again], [again], tools=[person])
    found = story.run(helper).result
    assert lists == ["- [/] find\n- [ ] send\n"]
    assert "A person has changed the list" in found[2] and "send to bob" in found[2] and "Updated" in found[3]
    assert content(story.files, "/todo.md") == b"- [x] find\n- [ ] send\n"


def test_the_files_of_a_run_lie_in_a_workspace_of_their_own(story: Story, place: Path) -> None:
    helper = story.make([("write_file", {"file_path": "/a.md", "content": "x"})])
    assert story.run(helper).status == "completed"
    until((place / "files/a.md").exists)
    assert (place / "files/a.md").read_text() == "x" and not (story.workspace / "files").exists()
    steps = [each["step"] for each in _records(story.workspace) if each["type"] == "step.completed"]
    assert steps == ["request", "files.write", "request"]


def _records(workspace: Path) -> list[Any]:
    files = sorted((workspace / "journal").iterdir())
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_a_change_that_another_writer_has_changed_since_a_crash_is_not_made_again(story: Story) -> None:
    story.files.write("/a.md", "one\n")
    made: list[Callable[[], Any]] = [lambda: story.files.write("/a.md", "by another\n")]

    class Cut(BaseException):
        pass

    real = story.files._apply

    def apply(changes: Any) -> bool:
        done = real(changes)
        if made:
            made.pop()()
            raise Cut
        return done

    edit = ("edit_file", {"file_path": "/a.md", "old_string": "one\n", "new_string": "one\none\n"})
    helper = story.make([edit])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(story.files, "_apply", apply)
        patched.setattr(story.files, "write", lambda *words: real({"a.md": _version(story.files, b"by another\n")}))
        with pytest.raises(BaseException):  # noqa: B017
            if error := story.run(helper).error:
                raise error
    assert "another writer has changed it since" in str(story.run(helper).result)
    assert content(story.files, "/a.md") == b"by another\n"


def test_a_change_that_can_not_be_made_any_more_after_a_crash_fails_the_run(story: Story) -> None:
    """Another program has made a folder where the file was to be."""

    class Cut(BaseException):
        pass

    def cut(changes: Any) -> bool:
        raise Cut

    helper = story.make([("write_file", {"file_path": "/a", "content": "x"})])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(story.files, "_apply", cut)
        with pytest.raises(BaseException):  # noqa: B017
            if error := story.run(helper).error:
                raise error
    assert story.files.upload_files([("/a/b.md", b"by another")])[0].error is None
    found = story.run(helper)
    assert found.status == "completed" and "another writer has changed it since" in str(found.result)


def _version(files: SatchelBackend, data: bytes) -> Any:
    found: Any = files._file("a.md")
    return backend._Change(found.version, data)


def test_its_own_backend_loses_parallel_edits_and_line_ends(tmp_path: Path) -> None:
    """What this adapter is compared with."""
    its = FilesystemBackend(tmp_path)
    its.upload_files([("/a.md", CRLF.encode())])
    its.edit("/a.md", "one", "1")
    assert content(its, "/a.md") == b"1\ntwo\nthree\n"
