"""The files of a run: `Handle.files`, to read them and to edit them as a person does, and `Handle.send`, which puts
tasks and messages into its inbox."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...schemas import Problem
from ...workspace import transfer
from ...workspace.base import (
    DEFINITION,
    Conflicting,
    InvalidFile,
    KeyReused,
    Refused,
    SatchelError,
    UsageError,
    arguments,
    check_path,
    decode,
    in_force,
    is_name,
    urls,
    visible,
)
from ...workspace.formats import parse, yamltext
from ...workspace.inbound import APPROVALS, CutOff, archive, cut_off, editable, inbox, is_known, judge
from ...workspace.inspect import ExportResult, Look, Remark, Report, define, lease, look_beside, transfer_file
from ...workspace.lifecycle import opened
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.state import AgentMoment
from ...workspace.store import FileChanged, FileContent, Store, Version, read_if_there
from ...workspace.transfer import Tell
from ...workspace.views import PARTIALS, RECOVERED, STATE, STEPS, TODO, conversation
from ..status import Place, Steps, in_a_thread, in_steps, wait_until_free

_FILES = frozenset((DEFINITION, TODO, STATE, "pause.yaml", "messages.jsonl"))
_FOLDERS = frozenset(
    (APPROVALS, archive.INBOX, "agents", "checkpoints", "outputs", STEPS, PARTIALS, RECOVERED, "conflicts")
)

_HELD = frozenset(("files", "logs"))
"""The same of a workspace that programs hold. In the folder of an agent they may be anything."""

_REFUSED = re.compile(r"[^/]+\.rejected(-[0-9]+)?(\.[^/]*)?")
"""A version of a file that was not taken, or the reasons."""

_READ = 1 << 20
"""Bytes of a file that are read at once, unless the caller gives a limit."""

_TIMES = 5


class RunFile(NamedTuple):
    """A file of a run: its path in the workspace, and its size in bytes."""

    path: str
    bytes: int


class Draft(Struct, frozen=True):
    """A todo.md or state.json, for a person to edit. `version` names this content for `RunFiles.edit`. Both texts are
    empty if there is no such file."""

    file: str
    text: str
    version: str


class EditResult(Struct, frozen=True):
    """The outcome of an edit.

    `says`: what it changes, one line each; empty if it changes nothing, and then the file was not written. `notes`:
    what else to know about it. `waits_for`: the process that takes it at its next safe point, in words; empty: the next
    start takes it.
    """

    file: str
    says: tuple[str, ...]
    notes: tuple[str, ...] = ()
    waits_for: str = ""


class MessageCut(Struct, frozen=True):
    """The conversation in `file`, of `agent`, ends after message `after`; at its beginning if that is 0.

    `says`: what is cut off, one line each; empty if that was its last message. `waits_for`: the process that takes the
    cut at its next safe point, in words; empty: it is recorded. `report` is that of the opening.
    """

    url: str
    run_id: str
    agent: str
    file: str
    after: int
    says: tuple[str, ...]
    waits_for: str = ""
    report: tuple[Remark, ...] = ()


class RunFiles:
    """The files of a run. Made by `Handle.files`.

    `list`, `read`, `draft` and `export` leave them as they are. `edit`, `cut_messages` and `raise_budget` change them
    as a person does, so the run takes the change as an edit.
    """

    def __init__(self, place: Place):
        self._place = place

    def __repr__(self) -> str:
        return f"<RunFiles of {visible(self._place.url)}>"

    def list(self) -> Sequence[RunFile]:
        """The files of the run that people read, by path: plan, state, conversation, questions, inbox, outputs, steps,
        recovered text, checkpoints, and those of its sub-agents. Not the agent's code, and nothing of `.satchel/` and
        `journal/`."""
        store = self._place.store
        store.refresh()
        found = [*_files(store, "")]
        known = _FOLDERS | _HELD if define(store).kind else _FOLDERS
        for folder in store.folders(""):
            if folder in known:
                found += _below(store, folder)
        return sorted(found)

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """The content of one of `list()`, redacted as `redact:` in workspace.yaml says. UsageError for any other path,
        and for a file of more than `limit` bytes; without one, of more than 1 MiB."""
        most: int = arguments.count("limit", limit, least=1) or _READ
        store = self._place.store
        check_path(arguments.text("path", path))
        folder = path.rpartition("/")[0]
        store.refresh(folder)
        is_one = is_readable(path) and (path.split("/")[0] not in _HELD or bool(define(store).kind))
        size = next((each.size for each in store.list(folder) if each.path == path), None) if is_one else None
        if size is None or _leads_through_a_link(store, folder):
            raise UsageError("is no readable file of this run", path=path, remedy="name one of the list of its files")
        try:
            data = store.read(path, limit=most).data
        except InvalidFile as error:
            found = error.problems[0].found
            raise UsageError(
                f"has {size:,} bytes, and at most {most:,} are read at once" if size > most else f"is {found}",
                path=path,
                remedy="read it in the workspace itself",
            ) from error
        return redactor_of(define(store)).file(path, data)

    def draft(self, file: str = "todo.md") -> Draft:
        """A todo.md or state.json as it is now, to edit it; `file` is its path in the workspace. UsageError for another
        file, InvalidFile if it is not a text."""
        _check_name(look_beside(self._place.store), file)
        there = read_if_there(self._place.store, file)
        return Draft(file, decode(there.data, file), there.version) if there else Draft(file, "", "")

    @in_steps
    def edit(self, file: str, text: str, *, version: str, conflict: bool = False) -> Steps[EditResult]:
        """Save a todo.md or state.json as a person does in an editor, if the run can take it.

        `text` is the whole file, with the stamp that tells from which moment it is: a change that was made from an
        older moment is merged. `version` is that of the draft. InvalidFile, with line and column, or Refused if the run
        could not take it; Conflicting if it contradicts what the run has done since, or another person has saved the
        file since. Then nothing was written. `conflict`: save it although it contradicts the run, which then pauses
        until `Handle.merge` has settled it. The state is checked against the schema of its type, but the type itself
        (validators) only when the run takes it. Not guaranteed: when that is. Other programs may save at any time.
        """
        place = self._place
        data, version = arguments.text("text", text).encode(), arguments.text("version", version)
        for _ in range(_TIMES):
            seen = look_beside(place.store)
            _check_name(seen, file)
            _check_not_cancelled(place, seen)
            if not data.strip():
                raise Refused(
                    "can't be empty", path=file, why="an empty file is restored", remedy="to end the run, cancel it"
                )
            there = read_if_there(place.store, file)
            found = judge(place.store, seen.moment, seen.definition, file, data, is_rebuilt=seen.is_rebuilt)
            if (
                there
                and there.version != version
                and there.data != data
                and not is_known(seen.moment, file, there.data)
            ):
                raise Conflicting(
                    "another person has saved it since you read it",
                    path=file,
                    why="the run has not taken that yet",
                    remedy="read the file again, and add what is missing there",
                )
            for refusal in found.refusals:
                raise refusal.error
            for question in () if conflict else found.questions:
                raise Conflicting(
                    "your text conflicts with the run",
                    path=file,
                    why="; ".join(map(str, question.places)),
                    remedy="read the file again, and make your change there",
                )
            says = [line for each in found.edits for line in each.record.says]
            says += [place.says for question in found.questions for place in question.places]
            says += ["this is the plan of the run" for _ in found.plans]
            if says and not _save(place, file, data, there):
                yield from place.look_again(0.1)
                continue
            if seen.mistake:
                place.tell(f"note: {in_force(seen.mistake)}")
            holder = lease.holder(place.store) if says else None
            notes = tuple(each.text for each in found.findings if not each.is_lag)
            return EditResult(file, tuple(says), notes, holder.process if holder else "")
        raise UsageError("keeps changing", path=file, remedy="try again in a moment")

    edit_async = edit.without_blocking

    @in_steps
    def cut_messages(self, after: int, *, agent: str = "") -> Steps[MessageCut]:
        """Cut the conversation off after the message with the `seq` `after`, or all of it with 0. `agent`: that of a
        sub-agent, by its path (`researcher/reader`).

        It is an edit of messages.jsonl: recorded now, or at the next safe point if a process runs the run. What the run
        says until then stays. InvalidFile if the cut would part the call of a tool from its results, UsageError for a
        message that is not there.
        """
        place = self._place
        number, store = arguments.count("after", after, least=0), place.store
        assert number is not None
        for last in range(_TIMES - 1, -1, -1):
            seen = look_beside(store)
            of = _find(place, seen, agent)
            file, holder = of.folder + conversation.NAME, lease.holder(store)
            try:
                found = cut_off(store, seen.moment, seen.definition, of.path, number)
            except SatchelError:
                if holder is None or not last:
                    raise
                yield from place.look_again(0.1)  # its files may have changed since the journal was read
                continue
            if found.says and not _save(place, file, found.data, found.there):
                yield from place.look_again(0.1)
                continue
            told = MessageCut(place.url, seen.moment.run_id, of.path, file, number, found.says)
            if not found.says:
                return told
            if holder is not None:
                return replace(told, waits_for=holder.process)
            yield from wait_until_free(place)
            report, saved = Report(), store.version(file)
            try:
                with opened(store, "edit", report, take_over=True) as workspace:
                    workspace.close()
            except SatchelError:
                _take_back(place, file, found, saved)
                raise
            return replace(told, report=(*report.remarks,))
        raise UsageError("keeps changing", path=file, remedy="try again in a moment")

    cut_messages_async = cut_messages.without_blocking

    @in_a_thread
    def raise_budget(self, limits: Mapping[str, Any]) -> EditResult:
        """Set limits of `budget:` in workspace.yaml, so that a run that has used them up can go on.

        `limits` are values of that file by name: `{"usd": 10, "time": "2h"}`. Every other line stays as it is.
        UsageError for a limit that the run has used up already, InvalidFile for a value that can't be one. Then nothing
        was written.
        """
        from ..live import shares_of  # few callers need it

        store, given = self._place.store, arguments.mapping("limits", limits)
        if not given:
            raise UsageError("name a limit", remedy='such as {"usd": 10}')
        for _ in range(_TIMES):
            seen, there = look_beside(store), store.read(DEFINITION)
            text = decode(there.data, DEFINITION)
            for kind, limit in given.items():
                text = yamltext.set_value(text, ("budget", kind), limit)
            for share in shares_of(parse(text).budget, seen.moment, datetime.now(UTC)):
                if share.kind in given and share.is_used_up:
                    raise UsageError(
                        f"the run has used {share.words}",
                        path=DEFINITION,
                        remedy=f"give a higher limit of {share.kind}",
                    )
            if _save(self._place, DEFINITION, text.encode(), there):
                holder = lease.holder(store)
                says = tuple(f"budget.{kind} is now {limit}" for kind, limit in given.items())
                return EditResult(DEFINITION, says, waits_for=holder.process if holder else "")
        raise UsageError("keeps changing", path=DEFINITION, remedy="try again in a moment")

    raise_budget_async = raise_budget.without_blocking

    @in_a_thread
    def export(self, to: str | os.PathLike[str], *, progress: Tell | None = None) -> ExportResult:
        """Write a zip file for other people to read: the readable files, the journal and the checkpoints, as of one
        record, also while a process runs it.

        Without what belongs to a process, and redacted as `redact:` in workspace.yaml says, also what was recorded
        before. export.json in it, and the result, say of which record it is, what was redacted and what was left out.
        The first `Handle.run` of an unpacked export needs `adopt` while the original exists. `progress` is called with
        "copying", the bytes done and the total. UsageError if `to` exists or is inside the workspace.
        """
        typed = arguments.place("to", to)
        arguments.function("progress", progress)
        if urls.is_remote(typed):
            raise UsageError(f"{typed!r} is no file of this machine", remedy="export to a file, and upload that")
        return transfer.export(self._place.store, typed, progress or (lambda *_: None))

    export_async = export.without_blocking


# Which there are


def is_readable(path: str) -> bool:
    """Whether a file of this path may be one of them. Looks only at the text."""
    parts = path.split("/")
    if not all(is_name(part) and not part.startswith(".") for part in parts):
        return False
    if len(parts) == 1:
        return path in _FILES or _REFUSED.fullmatch(path) is not None
    return parts[0] in _FOLDERS | _HELD


def _leads_through_a_link(store: Store, folder: str) -> bool:
    """A link to another folder of the workspace would lead to what is not readable, such as the code. Only a disk has
    links that a store follows."""
    if store.abilities.remote:
        return False
    while folder:
        above = folder.rpartition("/")[0]
        if folder not in store.folders(above):
            return True
        folder = above
    return False


def _files(store: Store, folder: str) -> Iterator[RunFile]:
    for path, size in store.list(folder):
        if is_readable(path):
            yield RunFile(path, size)


def _below(store: Store, folder: str) -> Iterator[RunFile]:
    yield from _files(store, folder)
    for inner in store.folders(folder):
        if not inner.rpartition("/")[2].startswith("."):
            yield from _below(store, inner)


# Edits


def _check_not_cancelled(place: Place, seen: Look) -> None:
    if seen.moment.status == "cancelled":
        raise UsageError("was cancelled and takes no edits", path=place.url, why="a cancellation is final")


def _check_name(seen: Look, file: str) -> None:
    if arguments.text("file", file) not in editable(seen.moment):
        raise UsageError(
            "is no plan and no state of the run",
            path=file,
            remedy="name todo.md or state.json, of a sub-agent with its folder: agents/NAME/todo.md",
        )


def _save(place: Place, file: str, data: bytes, there: FileContent | None) -> bool:
    """Save it as a person does. False if the file has changed since it was read."""
    try:
        if there is None:
            place.store.create(file, data)
        elif there.data != data:
            place.store.replace(file, data, if_version=there.version)
    except (FileChanged, FileExistsError):
        return False
    return True


def _find(place: Place, seen: Look, agent: str) -> AgentMoment:
    _check_not_cancelled(place, seen)
    path = arguments.text("agent", agent).strip("/")
    if path in seen.moment.agents:
        return seen.moment.agents[path]
    known = [each for each in seen.moment.agents if each]
    remedy = f"there are {', '.join(known[:9])}" if known else "the run has no sub-agents"
    raise UsageError(f"there is no agent {path!r}", path=place.url, remedy=remedy)


def _take_back(place: Place, file: str, found: CutOff, saved: Version | None) -> None:
    """The run could not be opened: a cut that was refused must not wait in the file for the next start."""
    with suppress(SatchelError, FileChanged, FileNotFoundError):
        if found.there is None:
            place.store.remove(file, if_version=saved)
        elif saved is not None:
            place.store.replace(file, found.there.data, if_version=saved)


# Tasks and messages

_DATA = (".yaml", ".yml", ".json")
_LEAST = 3  # bytes of a value in a list or mapping, as YAML
UNNAMED = "the text"
"""What an InvalidFile calls a content that has no file."""


class SendResult(Struct, frozen=True):
    """What was put into the inbox. `file` is its path in the workspace. It is on the disk, and not yet taken."""

    file: str
    kind: Literal["task", "message"]


class _Parcel(NamedTuple):
    data: bytes
    extension: Literal["md", "yaml"]
    words: str  # for the file's name


def send(place: Place, contents: Sequence[Any], *, as_message: bool, key: str) -> list[SendResult]:
    """Checks all of them before it sends the first."""
    if key and len(contents) != 1:
        raise UsageError("a key is for one task", why=f"there are {len(contents)}", remedy="send each with its own key")
    seen = look_beside(place.store)
    transfer_file.refuse_backup(place.store)
    transfer_file.refuse_overtaken(place.store)
    seen.check_has_agent(place.url)
    earlier = archive.find_keyed(place.store, key) if key else None
    if seen.moment.status == "cancelled" and earlier is None:
        raise UsageError(
            "was cancelled and accepts no tasks",
            path=place.store.url,
            remedy="send the tasks to another run; `satchel new` makes one",
        )
    redactor = redactor_of(seen.definition)
    try:
        parcels = [_packed(redactor.value(content), as_message) for content in contents]
    except RecursionError:
        too_deep = Problem("the value", "hundreds of nested levels", "at most 32", "Use fewer levels")
        raise InvalidFile(UNNAMED, [too_deep]) from None
    if redactor:
        parcels = [_redacted(parcel, redactor) for parcel in parcels]
    for parcel in parcels:
        inbox.parse(f"{parcel.words or UNNAMED}.{parcel.extension}", parcel.data)
    if earlier is None:
        files = [inbox.send(place.store, *parcel, key=key) for parcel in parcels]
    elif earlier.mark == archive.mark_of_key(key, parcels[0].data) and earlier.path.endswith(
        f".{parcels[0].extension}"
    ):
        place.store.settle(earlier.folder)  # its sender may have been killed before the name was durable
        files = [earlier.path]
    else:
        raise KeyReused(
            "the key was used for another task", path=earlier.path, remedy="send a new task with a key of its own"
        )
    if seen.mistake:
        place.tell(f"note: {in_force(seen.mistake)}")
    return [SendResult(file, "message" if as_message else "task") for file in files]


def _redacted(parcel: _Parcel, redactor: Redactor) -> _Parcel:
    """Without secrets. Of data each value is redacted, since what stands for a secret would be a list in YAML."""
    data = redactor.data(parcel.data)
    if parcel.extension == "yaml":
        with suppress(InvalidFile):  # it is refused in a moment
            value = yamltext.load(decode(parcel.data, UNNAMED), UNNAMED).value
            if (clean := redactor.value(value)) is not value:
                data = redactor.data(yamltext.dump(clean).encode())
    return _Parcel(data, parcel.extension, redactor.text(parcel.words))


def _packed(content: Any, as_message: bool) -> _Parcel:
    if isinstance(content, str):
        return _wrapped(content, as_message, "")
    if isinstance(content, os.PathLike):
        return _file(arguments.place("a file to send", content), as_message)
    if as_message:
        raise UsageError("is data, but a message must be a text", path=type(content).__name__)
    if _values(content) * _LEAST > yamltext.LIMIT:  # writing so many takes many seconds, only to refuse them then
        most = f"more than {yamltext.LIMIT >> 10} KiB as YAML"
        too_large = Problem("the value", most, "less", "Put large content into a separate file")
        raise InvalidFile(UNNAMED, [too_large])
    try:
        return _Parcel(yamltext.dump(content).encode(), "yaml", "")
    except (TypeError, ValueError) as error:
        raise UsageError(
            "can't be sent", path=type(content).__name__, why=str(error), remedy="send a text, a path, or JSON data"
        ) from error


def _values(content: Any) -> int:
    """How many values there are in lists and mappings."""
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    return len(inner) + sum(map(_values, inner))


def _file(path: str, as_message: bool) -> _Parcel:
    if os.path.isdir(path):
        raise UsageError("is a folder", path=path, remedy="name the files in it")
    if not os.path.exists(path):
        raise UsageError("no such file", path=path, remedy="to send it as a text, write it to `satchel send WS -`")
    try:
        with open(path, "rb") as file:
            data = file.read(inbox.LIMIT + 1)
    except OSError as error:
        raise UsageError("can't be read", path=path, why=error.strerror or str(error)) from error
    stem, extension = os.path.splitext(os.path.basename(path))
    if extension.lower() not in _DATA:
        return _wrapped(decode(data, path), as_message, stem)
    if as_message:
        raise UsageError("is data, but a message must be a text", path=path)
    return _Parcel(data, "yaml", stem)


def _wrapped(text: str, as_message: bool, words: str) -> _Parcel:
    if not arguments.text("a text to send", text).strip():
        raise UsageError("is empty", path=words or None, remedy="write what to do")
    if as_message:
        return _Parcel(inbox.message(text), "yaml", words)
    return _Parcel(text.encode() if text.endswith("\n") else f"{text}\n".encode(), "md", words)
