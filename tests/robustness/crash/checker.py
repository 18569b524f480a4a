"""What must be true of a workspace that was opened after a crash.

Looks only at the files, at the journal as book.py reads it, and at what a witness of the past has seen.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from satchel.workspace.inspect.report import Report

from . import book
from .book import Book
from .witness import Fact, Witness

Tree = Mapping[str, bytes]
_TODO = re.compile(rb"(.*)\n<!-- satchel (\d+)\.\d+\.([0-9a-f]{8}) -->\n", re.DOTALL)


class Violation(Exception):
    """A promise was broken. `path` is the file it shows in, if it shows in one."""

    def __init__(self, what: str, path: str = ""):
        super().__init__(what)
        self.path = path


def check(before: Tree, after: Tree, witness: Witness, report: Report) -> None:
    """`before` is what the crash left, `after` what an opening has made of it."""
    try:
        journal = book.read(after, past=witness.acknowledged)
    except book.Unreadable as error:
        raise Violation(f"the journal was not mended: {error}") from error
    journal_is_kept(journal, witness)
    _is_kept_for_ever(journal, after)
    _each_is_true(before, journal)
    _checkpoint_folders(before)
    for fact in witness.facts:
        if not _holds(fact, journal, after):
            raise Violation(f"forgotten: {fact}", str(fact.key) if fact.kind == "output" else "")
    _state(journal, after)
    _todo(journal, after)
    _steps(journal, after)
    _messages(journal, after)
    _blobs(journal, after)
    _outputs(journal, after, witness)
    _partials(before, after, journal, witness)
    _nobody_is_blamed(before, after, journal, report)


def journal_is_kept(journal: Book, witness: Witness) -> None:
    """Every record that was acknowledged is there, and none that nobody has written."""
    for seq, line in witness.acknowledged.items():
        if seq > len(journal.lines):
            raise Violation(f"record {seq} was acknowledged and is gone: {line.decode()}", "journal")
        if journal.lines[seq - 1] != line:
            raise Violation(f"record {seq} was acknowledged, and another one stands in its place", "journal")
    opened = max(at for at, kind in enumerate(journal.kinds) if kind == "opened")
    for line in journal.lines[:opened]:
        if line not in witness.written:
            raise Violation(f"nobody has written this record: {line.decode()}", "journal")
    if journal.epochs != sorted(set(journal.epochs)):
        raise Violation(f"two openings can't be told apart: epochs {journal.epochs}", "journal")


def _is_kept_for_ever(journal: Book, after: Tree) -> None:
    """Effects of pruned records; and a record says that these are pruned."""
    pruned, kept = book.pruned_to(after), book.kept(after)
    said = 0
    for record in book.records(journal.lines):
        is_effect = record["type"] == "step.started" or record.get("effect")
        if record["seq"] <= pruned and is_effect and record["seq"] not in kept:
            raise Violation(f"record {record['seq']} of an effect is pruned and not kept", "journal")
        said = max(said, record.get("up_to", 0)) if record["type"] == "pruned" else said
    if pruned > said:
        raise Violation(f"records up to {pruned} are pruned, and the journal says so up to {said}", "journal")


def _holds(fact: Fact, journal: Book, after: Tree) -> bool:
    match fact:
        case Fact("data", key, value):
            return isinstance(journal.data, dict) and journal.data.get("items", {}).get(key) == value
        case Fact("result", scope, value):
            return scope in journal.results and _result(journal.results[scope], after) == value
        case Fact("step", (scope, step), value):
            done = [each for key, each in journal.done.items() if key[:2] == (scope, step)]
            return scope in journal.results or any(_result(each, after) == value for each in done)
        case Fact("outside", key):
            return key in journal.ever_started
        case Fact("tick", text):
            return journal.plan is not None and bool(re.search(rf"- \[x\] {re.escape(text)}( \^|\n|$)", journal.plan))
        case Fact("plan", text):
            return journal.plan is not None and f"] {text}" in journal.plan
        case Fact("output", path, data):
            return path in journal.outputs and path in after and (after[path] == data or data is None)
        case Fact("message", content, count):
            return journal.messages.count(content) == count
        case Fact("resolved", doubt):
            return doubt in journal.settled
        case Fact("ran" | "stepped" | "progress"):
            return True  # what follows from it is for the workload to say
    raise AssertionError(fact)


def _result(record: Mapping[str, object], after: Tree) -> object:
    if blob := record.get("blob"):
        return json.loads(after.get(f".satchel/blobs/{blob}", b"null"))
    return record.get("result")


def _state(journal: Book, tree: Tree) -> None:
    data = tree.get("state.json", b"")
    try:
        state = json.loads(data)
    except ValueError as error:
        raise Violation(f"state.json can't be read: {error}", "state.json") from error
    _stamped("state.json", state["at"]["seq"], journal)
    blank = re.sub(rb'("sha": ?")[0-9a-f]{8}', rb"\g<1>00000000", data, count=1)
    if hashlib.sha256(blank).hexdigest()[:8] != state["at"]["sha"]:
        raise Violation("the hash of state.json is not its own", "state.json")
    shows = state["data"], len(state["open"]), set(state["waiting_for"]), state["usage"]["steps"]
    wanted = journal.data, len(journal.open), set(journal.doubts), journal.steps
    if shows != wanted:
        raise Violation(f"state.json shows {shows}, and the journal says {wanted}", "state.json")


def _todo(journal: Book, tree: Tree) -> None:
    if journal.plan is None:
        return
    match = _TODO.fullmatch(tree.get("todo.md", b""))
    if not match:
        raise Violation("todo.md has no stamp", "todo.md")
    _stamped("todo.md", int(match[2]), journal)
    if hashlib.sha256(f"{journal.run_id}/\n".encode() + match[1]).hexdigest()[:8] != match[3].decode():
        raise Violation("the hash of todo.md is not its own", "todo.md")
    if match[1].decode() != journal.plan:
        raise Violation(f"todo.md shows {match[1].decode()!r}, and the journal says {journal.plan!r}", "todo.md")


def _each_is_true(before: Tree, journal: Book) -> None:
    """Before anybody has opened the workspace, too, each file shows a moment that there was, whole."""
    if "state.json" in before:
        match = re.search(rb'"seq": ?(\d+)', before["state.json"])
        _state(_until(journal, "state.json", match), before)
    match = _TODO.fullmatch(before.get("todo.md", b""))
    if match:
        _todo(_until(journal, "todo.md", re.search(rb"satchel (\d+)\.\d+\.[0-9a-f]{8} -->\n\Z", match[0])), before)


def _checkpoint_folders(before: Tree) -> None:
    """What `why.md` says of the other files of its folder is true of all that are there: else a crash looks like a
    person's edit."""
    for path, data in before.items():
        match = _TODO.fullmatch(data) if re.fullmatch(r"checkpoints/[^/]+/why\.md", path) else None
        if path.endswith("/why.md") and not match:
            raise Violation(f"{path} is torn", path)
        for name, sha in re.findall(rb"^- `([^`]+)` ([0-9a-f]{64})$", match[1] if match else b"", re.MULTILINE):
            shown = before.get(f"{path.removesuffix('why.md')}{name.decode()}")
            if shown is not None and hashlib.sha256(shown).hexdigest() != sha.decode():
                raise Violation(f"{path} has another hash of {name.decode()}", path)


def _until(journal: Book, path: str, position: re.Match[bytes] | None) -> Book:
    if position is None:
        raise Violation(f"{path} is torn", path)
    if int(position[1]) > len(journal.lines):
        raise Violation(f"{path} shows record {int(position[1])}, which the journal does not have", path)
    return book.until(journal.lines, int(position[1]))


def _stamped(path: str, seq: int, journal: Book) -> None:
    if seq != len(journal.lines):
        raise Violation(f"{path} stands at record {seq}, the journal at {len(journal.lines)}", path)


def _steps(journal: Book, after: Tree) -> None:
    shown = sorted(
        (found["scope"], found["no"], found["step"], found["status"], json.dumps(found.get("result")))
        for path, data in after.items()
        if path.startswith("steps/") and not path.endswith("/")
        for found in [json.loads(data)]
    )
    wanted = [
        (key[0], each["no"], key[1], status, "null" if each.get("blob") else json.dumps(each.get("result")))
        for records, status in ((journal.done, "completed"), (journal.started, "in_doubt"))
        for key, each in records.items()
    ]
    wanted = [(*row[:4], "null") if row[3] == "in_doubt" else row for row in wanted]
    if shown != sorted(wanted):
        raise Violation(f"steps/ shows {shown}, and the journal says {sorted(wanted)}", "steps")


def _messages(journal: Book, after: Tree) -> None:
    try:
        found = [json.loads(row)["content"] for row in after.get("messages.jsonl", b"").splitlines()]
    except ValueError as error:
        raise Violation(f"messages.jsonl can't be read: {error}", "messages.jsonl") from error
    if found != journal.messages:
        raise Violation(f"messages.jsonl holds {found}, and the journal says {journal.messages}", "messages.jsonl")


def _blobs(journal: Book, after: Tree) -> None:
    for record in (*journal.done.values(), *journal.results.values()):
        if blob := record.get("blob"):
            data = after.get(f".satchel/blobs/{blob}")
            if data is None or hashlib.sha256(data).hexdigest() != blob[:64]:
                raise Violation(f"the blob of record {record['seq']} is gone or torn", f".satchel/blobs/{blob}")


def _outputs(journal: Book, after: Tree, witness: Witness) -> None:
    for path, sha in journal.outputs.items():
        data = after.get(path)
        if data is None:
            raise Violation(f"{path} was committed and is gone", path)
        if hashlib.sha256(data).hexdigest() != sha and data not in witness.outputs.get(path, ()):
            raise Violation(f"{path} is nothing that was ever written there", path)


def _partials(before: Tree, after: Tree, journal: Book, witness: Witness) -> None:
    left = [path for path in after if path.startswith("partials/") and not path.endswith("/")]
    if left:
        raise Violation(f"{left[0]} was not promoted", left[0])
    recovered = {}
    for record in journal.promoted:
        key = record["scope"], record["step"], record["attempt"]
        text = _recovered(after, record["file"], record["characters"])
        recovered[key] = text
        handed_over, _ = witness.streams.get(key, ("", ""))
        if not handed_over.startswith(text):
            raise Violation(f"{record['file']} holds {text[-40:]!r}, which nobody has streamed", record["file"])
        if not record["damaged"] and record["characters"] != len(text):
            raise Violation(f"{record['file']} is shorter than its record says", record["file"])
    for key, (_, kept) in witness.streams.items():
        answered = key[0] in journal.results or any(call[:2] == key[:2] for call in journal.done)
        if not witness.power_failed and not answered and not recovered.get(key, "").startswith(kept):
            raise Violation(f"a kill has lost streamed text of {key}: {len(kept)} characters had arrived")


def _recovered(after: Tree, path: str, characters: int) -> str:
    data = after.get(path)
    if data is None:
        raise Violation(f"{path} was promoted and is gone", path)
    _, _, body = data.removeprefix(b"---\n").partition(b"\n---\n")
    return body.decode()[:characters]


def _nobody_is_blamed(before: Tree, after: Tree, journal: Book, report: Report) -> None:
    """A crash must not be taken for a person's edit."""
    for remark in report.remarks:
        if remark.kind == "edited" or "by hand" in remark.text or "edited" in remark.text:
            raise Violation(f"the report blames a person for a crash: {remark.text}")
    if "edited" in journal.kinds:
        edit = journal.lines[journal.kinds.index("edited")]
        raise Violation(f"the journal takes a crash for a person's edit: {edit.decode()}")
    for path in after:
        if (".rejected." in path or path.startswith("conflicts/")) and path not in before:
            raise Violation(f"{path} keeps as somebody's what a crash has left", path)
