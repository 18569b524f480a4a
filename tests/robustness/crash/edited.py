"""What must be true of edits by people when the opening that took them, or refused them, was crashed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import book
from .book import Book
from .checker import Tree, Violation, journal_is_kept
from .witness import Witness

Wanted = Callable[[Mapping[str, bytes]], None]
_TODO = re.compile(rb"(.*)\n<!-- satchel (\d+)\.\d+\.([0-9a-f]{8}) -->\n", re.DOTALL)


class Judge:
    """`base` is what the run had left, `edited` what people have made of it; `wanted` raises Violation if a workspace
    that was opened, and in which nothing has been done since, does not show what they wanted."""

    def __init__(self, base: Tree, edited: Tree, wanted: Wanted):
        self._base, self._edited, self._wanted = base, edited, wanted
        self._by_hand = {path: data for path, data in edited.items() if base.get(path) != data and data.strip(b"\0 \n")}

    def left(self, before: Tree) -> None:
        """What a crash has left: each edit is there, or is kept beside, or is recorded; each at most once."""
        recorded = Counter(record["sha"] for record in _edits(before) if record["sha"])
        known = {hashlib.sha256(data).hexdigest(): path for path, data in self._by_hand.items()}
        for sha, times in recorded.items():
            if sha not in known:
                raise Violation(f"an edit of nobody is recorded: {sha}", "journal")
            if times > 1:
                raise Violation(f"the edit of {known[sha]} is recorded {times} times", known[sha])
        for path, data in self._by_hand.items():
            is_recorded = recorded[hashlib.sha256(data).hexdigest()] == 1
            if before.get(path) != data and not is_recorded and not _kept_beside(path, data, before):
                raise Violation(f"what a person has written into {path} is lost", path)
        redone = Counter((each.get("agent", ""), key) for each in _edits(before) for key in each.get("redone", []))
        if twice := [each for each, times in redone.items() if times > 1]:
            raise Violation(f"an untick was obeyed twice: {twice}", "journal")

    def turned_away(self, before: Tree, after: Tree, error: Exception) -> None:
        """The opening has refused: the refused file is kept with its reasons and restored; the others are as they
        were."""
        self.left(after)
        self._kept_is_whole(after)
        for path, data in self._by_hand.items():
            if before.get(path) == data and after.get(path) != data:
                if not _kept_beside(path, data, after):
                    raise Violation(f"{path} was taken away and is not kept: {error}", path)
                self._is_restored(path, after)

    def opened(self, before: Tree, after: Tree, witness: Witness) -> None:
        """The opening has taken what is there."""
        self.left(after)
        if "state.json" in self._edited and not any(path.startswith("journal/") for path in self._edited):
            return self._is_rebuilt(after)
        try:
            journal = book.read(after)
        except book.Unreadable as error:
            raise Violation(f"the journal was not mended: {error}") from error
        journal_is_kept(journal, witness)
        files_agree(journal, after)
        self._kept_is_whole(after)
        kept = {path for path in self._by_hand if _kept_beside(path, self._by_hand[path], after)}
        for path, data in self._by_hand.items():
            if after.get(path) == data:
                raise Violation(f"{path} is as a person left it, though the opening went on", path)
        if not kept:
            self._wanted(after)

    def _is_rebuilt(self, after: Tree) -> None:
        """Without the journal's history there is only what the files had said."""
        stands = set()
        for path, data in self._base.items():
            if path.startswith("checkpoints/"):
                continue
            name = path.rpartition("/")[2]
            if name == "state.json" and ".satchel" not in path:
                found = json.loads(after[path])
                stands.add(found["at"]["seq"])
                if found["data"] != json.loads(data)["data"]:
                    raise Violation(f"{path} has become {found['data']}", path)
            elif name == "todo.md":
                was, now = _TODO.fullmatch(data), _TODO.fullmatch(after.get(path, b""))
                if not (was and now and was[1] == now[1]):
                    raise Violation(f"{path} has become {after.get(path)!r}", path)
                stands.add(int(now[2]))
        if len(stands) != 1:
            raise Violation(f"the files stand at different records: {stands}")

    def _kept_is_whole(self, after: Tree) -> None:
        for path, data in after.items():
            if ".rejected" in path and not path.endswith(".txt"):
                if data not in self._by_hand.values():
                    raise Violation(f"{path} is not what a person has written", path)
                reasons = f"{path.rpartition('.')[0]}.txt"
                if not after.get(reasons, b"").strip():
                    raise Violation(f"{reasons} does not say why", reasons)
                if "rejected-" in path:
                    raise Violation(f"{path}: the same version is kept twice", path)
            if path.startswith("conflicts/") and ".theirs." in path and data not in self._by_hand.values():
                raise Violation(f"{path} is not what a person has written", path)

    def _is_restored(self, path: str, after: Tree) -> None:
        data = after.get(path, b"")
        match = _TODO.fullmatch(data) if path.endswith(".md") else re.search(rb'"sha": ?"[0-9a-f]{8}"', data)
        if not match:
            raise Violation(f"{path} was refused and is not restored", path)


def files_agree(journal: Book, after: Tree) -> None:
    """The plan and the data of every agent show what the journal says, and one moment."""
    for agent, said in books(journal).items():
        folder = "".join(f"agents/{name}/" for name in agent.split("/")) if agent else ""
        data = after.get(f"{folder}state.json", b"")
        try:
            state = json.loads(data)
        except ValueError as error:
            raise Violation(f"{folder}state.json can't be read: {error}", f"{folder}state.json") from error
        blank = re.sub(rb'("sha": ?")[0-9a-f]{8}', rb"\g<1>00000000", data, count=1)
        if hashlib.sha256(blank).hexdigest()[:8] != state["at"]["sha"]:
            raise Violation(f"the hash of {folder}state.json is not its own", f"{folder}state.json")
        if (state["at"]["seq"], state["data"]) != (len(journal.lines), said.data):
            raise Violation(
                f"{folder}state.json shows {state['data']} at record {state['at']['seq']}, and the journal says "
                f"{said.data} at record {len(journal.lines)}",
                f"{folder}state.json",
            )
        if said.plan is not None:
            match = _TODO.fullmatch(after.get(f"{folder}todo.md", b""))
            shown = (match[1].decode(), int(match[2])) if match else None
            if shown != (said.plan, len(journal.lines)):
                raise Violation(
                    f"{folder}todo.md shows {shown}, and the journal says {said.plan!r}", f"{folder}todo.md"
                )
        _steps(folder, said, after)


def _steps(folder: str, said: Book, after: Tree) -> None:
    shown = sorted(
        (found["scope"], found["no"], found["step"], found["status"], json.dumps(found["result"]))
        for path, data in after.items()
        if re.fullmatch(rf"{folder}steps/[^/]+/\d+-[a-z-]+\.json", path)
        for found in [json.loads(data)]
    )
    wanted = sorted(
        (key[0], each["no"], key[1], status, "null" if status == "in_doubt" else json.dumps(each.get("result")))
        for records, status in ((said.done, "completed"), (said.started, "in_doubt"))
        for key, each in records.items()
        if key[0] in said.open
    )
    if shown != wanted:
        raise Violation(f"{folder}steps shows {shown}, and the journal says {wanted}", f"{folder}steps")


def books(journal: Book) -> dict[str, Book]:
    """By agent, what the journal says of it."""
    found: dict[str, Book] = {"": Book(blobs=journal.blobs)}
    for line, record in zip(journal.lines, book.records(journal.lines), strict=True):
        agent = record.get("agent", "")
        if agent not in found:
            found[agent] = Book(agent, journal.blobs)
        of_all = record["type"] in ("opened", "resolved", "approval.answered", "rewound")
        for each in found.values() if of_all else (found[agent],):
            each.add(line, record)
    return found


def _edits(tree: Tree) -> Iterator[dict[str, Any]]:
    for record in book.records(book.read(tree, torn=True).lines):
        if record["type"] == "edited":
            yield record


def _kept_beside(path: str, data: bytes, tree: Tree) -> bool:
    stem, _, extension = path.rpartition(".")
    return any(tree.get(f"{stem}.{suffix}.{extension}") == data for suffix in ("rejected", "rejected-2"))
