"""The possible findings about the readable files, what each choice in a conflict would do, and what the bytes of such a
file alone tell."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ...schemas import short
from .. import journal
from ..base import Copy, Damaged, Refused, SatchelError, Stamped, decode
from ..formats import decoder, jsontext
from ..inspect import is_unchanged
from ..journal import RECORD_BYTES, ApprovalAsked, Doubt, Edited, FileWritten, OfCall
from ..plan import Changes, Plan
from ..secrets import Redactor
from ..state import FILES, AgentMoment, Listed, Moment, PastMoments
from ..store import READ_LIMIT, FileContent, Store, Trace, Version
from ..views import PATIENCE, MessageRow, Unsettled, conversation, until_settled

CONFLICTS = "conflicts"
_FEW = 4
EDIT_BYTES = RECORD_BYTES // 2  # that an edit may have: the rest of its record is short
_LARGE = EDIT_BYTES // 8  # one byte of a file may be six in a record

Side = Literal["ours", "theirs", "edited"]
"""Which version wins in a conflict: the run's, the file's where they differ, or the file as a whole."""

ChangeKind = Literal[
    "added",
    "done",
    "again",
    "dropped",
    "revived",
    "reworded",
    "moved",
    "text",
    "results",
    "values_added",
    "values_replaced",
    "values_removed",
    "left",
]
"""What is counted of a choice: items of the plan; whether the text around them changes; `results` of the run that no
longer count; values of state.json; and the conflicting places of the file that are not taken."""


class CheckData(Protocol):
    """Asks the state type of the agent at `path`, where its code may run."""

    def schema(self, path: str) -> dict[str, Any] | None:
        """The schema of its data. None if it is not known here: then the copy in the workspace counts."""

    def kept(self, path: str, data: Any) -> Any:
        """The data without the keys that the agent drops when it is entered."""

    def __call__(self, path: str, data: Any) -> None:
        """UsageError if the type does not take these edited data."""


class Edit(Struct, frozen=True):
    """One file's edit, as it will be recorded."""

    record: Edited
    after: Plan | None = None  # the resulting plan
    doubts: tuple[Doubt, ...] = ()  # without ids: unknown effects, in items that won't be entered again
    changes: Changes | None = None  # in the plan
    data: bytes | None = None  # of a file in files/

    @property
    def about(self) -> set[str]:
        """The scopes that it is about, and the remaining items that it drops, puts off or rewords before they have
        begun: none of them may begin before it is taken, and those that run must end."""
        record, changes = self.record, self.changes
        about = {*record.redone, *record.dropped, *(() if record.step is None else (record.step.scope,))}
        if changes is not None:
            about |= {task.known_by for task in (*changes.dropped, *changes.waiting)}
            about |= {pair.before.known_by for pair in changes.reworded if pair.before.mark == "open"}
        return about

    @property
    def stops(self) -> set[str]:
        """The scopes that it stops in an agent that does one item after the other."""
        waiting = () if self.changes is None else (task.id for task in self.changes.waiting if task.id)
        return {*self.record.redone, *self.record.dropped, *waiting}


class RejectedFile(Struct, frozen=True):
    """A file that can't be accepted. It is kept, if `data` is given; else it stays where it is."""

    path: str
    error: SatchelError
    data: bytes | None = None


class ConflictPlace(Struct, frozen=True):
    """A place at which a file and the run differ, in words, and the text of each version there. None: it has nothing
    there; a base that is not known has nothing anywhere."""

    says: str
    base: str | None = None
    ours: str | None = None
    theirs: str | None = None

    def __str__(self) -> str:
        return self.says


class FileConflict(Struct, frozen=True):
    """A file that conflicts with the run, or may have lost something: a person has to decide. `choices`: what each
    choice would do, if that was asked."""

    path: str
    places: tuple[ConflictPlace, ...]
    base: bytes | None
    ours: bytes
    theirs: bytes
    choices: tuple[ConflictChoice, ...] = ()


class ConflictChoice(Struct, frozen=True):
    """What the version `use` would do to the run. `counts`: the changes by their kind; `says`: the first ones in words,
    as they will be recorded; `refused`: why the run can't take it."""

    use: Side
    counts: dict[ChangeKind, int]
    says: tuple[str, ...] = ()
    refused: str = ""


class Copied(Struct, frozen=True):
    """A file from the folder of a checkpoint, over the run's own. `data`: the agent's data in it, if there are some
    that the agent could take."""

    path: str
    copy: Copy
    bytes: bytes
    agent: str
    data: Raw | None


KeptVersion = Literal["base", "ours", "theirs"]
"""The versions of a conflict: base, the run's, the file's."""


def version_of(path: str, side: KeptVersion) -> str:
    """Where this version of a file in conflict is kept until a person has decided."""
    stem, _, extension = path.rpartition(".")
    return f"{CONFLICTS}/{stem}.{side}.{extension}"


class Repair(NamedTuple):
    """What Satchel mends in a file without a question."""

    path: str
    text: str
    is_lag: bool = False  # it is of an earlier moment, as after every crash
    settles: bool = False  # a person has made it equal to the run's version

    def __str__(self) -> str:
        return f"{self.path} {self.text}"


class ConversationText(NamedTuple):
    """All messages of an agent, as its file should be, and whether it is."""

    data: bytes
    is_there: bool


class Noticed(Struct):
    """The results of a look. The lists are in the order of the files."""

    versions: dict[str, Version] = field(default_factory=dict)  # of every file that was looked at
    shown: dict[str, dict[str, OfCall]] = field(default_factory=dict)  # by agent: step files that are as they should be
    conversations: dict[str, ConversationText] = field(default_factory=dict)  # by key of the log; before an edit of it
    files: dict[str, int] = field(default_factory=dict)  # by path, the recorded version that a file in files/ has
    leftovers: list[str] = field(default_factory=list)  # step files of scopes that are no longer open
    findings: list[Repair] = field(default_factory=list)  # repairs that need no question
    edits: list[Edit] = field(default_factory=list)
    refusals: list[RejectedFile] = field(default_factory=list)
    questions: list[FileConflict] = field(default_factory=list)
    overruled: list[RejectedFile] = field(default_factory=list)  # files that a person has settled in favour of the run
    kept: dict[str, bytes] = field(default_factory=dict)  # by path: people's versions in unresolved conflicts
    plans: dict[str, str] = field(default_factory=dict)  # by agent: a plan that a person wrote where there was none
    definition: dict[str, object] | None = None  # the content of workspace.yaml, if the journal doesn't have it yet
    back: ApprovalAsked | None = None  # the question about files of a checkpoint; without an id
    changed_copies: list[str] = field(default_factory=list)  # those of these files that a person has changed
    being_saved: list[str] = field(default_factory=list)  # files that have not settled: they are left alone

    @property
    def handled(self) -> set[str]:
        """The files that differ from what Satchel wrote."""
        asked = {question.path for question in self.questions} | {refusal.path for refusal in self.refusals}
        return asked | {edit.record.file for edit in self.edits} | {finding.path for finding in self.findings}

    @property
    def is_anything(self) -> bool:
        """Whether an opening would have to report or do something about people's changes."""
        return bool(self.edits or self.refusals or self.questions or self.plans or self.definition or self.back)

    @property
    def told(self) -> list[str]:
        """The findings for a person. Of many old files, as in a tree of agents, only the number."""
        lagging = [finding for finding in self.findings if finding.is_lag]
        few = len(lagging) <= _FEW
        said = [str(finding) for finding in self.findings if few or not finding.is_lag]
        return said if few else [f"{len(lagging)} files were older than the run; Satchel updates them", *said]

    @property
    def reopens(self) -> bool:
        """Whether there is new work."""
        open_plans = (edit.after for edit in self.edits if edit.after is not None)
        is_open = any(plan.progress.settled < plan.progress.leaves for plan in open_plans)
        return is_open or bool(self.plans) or any(edit.record.step or edit.record.redone for edit in self.edits)


class StillMoving(Exception):
    """A file is being saved at this moment, or was removed; the next look will tell."""


class Looking(Struct):
    """What the checks of the single files share."""

    store: Store
    moment: Moment
    history: PastMoments
    noticed: Noticed
    choices: Mapping[str, Side]
    check_data: CheckData | None
    is_rebuilt: bool = False  # the moment was made from these files, with their edits
    held: Mapping[str, FileContent] | None = None  # of an active run: the files that have settled
    patience: float = PATIENCE  # seconds that one file is waited for, otherwise
    listed: Listed = field(default_factory=dict)  # files that show the moment, if these are still their versions
    redactor: Redactor = Redactor()
    is_unsaved: bool = False  # a text that is about to be saved
    copies: list[Copied] = field(default_factory=list)  # files of checkpoints
    recorded: dict[str, list[list[MessageRow]]] = field(default_factory=dict)  # see `conversations`
    put: set[tuple[str, str]] | None = None  # see `was_put`
    moved_on: Collection[str] = ()  # files in files/ that were saved before the recorded version was written there

    @property
    def is_active(self) -> bool:
        """Whether a process runs it."""
        return self.held is not None

    def conversations(self, key: str) -> list[list[MessageRow]]:
        """A log as the journal has it, before each edit and now. It is read once."""
        if not self.recorded:
            self.recorded = conversation.recorded(self.store, self.moment)
        return self.recorded[key]

    def was_put(self, path: str, digest: str) -> bool:
        """Whether this version of a file in files/ counts or has counted."""
        if self.put is None:
            self.put = versions_put(self.store, self.moment)
        return (path, digest) in self.put

    def is_as_listed(self, path: str) -> bool:
        return is_unchanged(self.store, self.listed, path)

    def steady(self, path: str, *, limit: int = READ_LIMIT) -> FileContent | None:
        """The file once it has settled; None if it does not exist. StillMoving if waiting for it is over, and Unsettled
        if it changes all the time."""
        if self.held is None:
            try:
                return until_settled(self.store, path, self.patience, limit=limit)
            except Unsettled as error:
                if not error.is_open and self.patience >= PATIENCE:
                    raise
                self.noticed.being_saved.append(path)
                raise StillMoving(path) from None
        found = self.held.get(path)
        if found is None or self.store.version(path) != found.version:
            raise StillMoving(path)
        return found

    def settled(self, path: str, is_ours: Callable[[bytes], bool]) -> FileContent | None:
        """The file: at once if it is as the run wrote it, else once it has settled. None and errors as in `steady`."""
        with suppress(FileNotFoundError):
            if self.store.version(path) is not None and is_ours((found := self.store.read(path)).data):
                return found
        return self.steady(path)

    def choice(self, path: str) -> Side | None:
        return self.choices.get(path, self.choices.get(""))

    def refuse(self, path: str, error: SatchelError, data: bytes | None = None) -> None:
        """`data` is kept, without secrets; nor does the reason quote one, not even in part."""
        if data is not None and (secret := self.secret(path, data)) is not None:
            error, data = secret, self.redactor.file(path, data)
        self.noticed.refusals.append(RejectedFile(path, error, data))

    def secret(self, path: str, data: bytes) -> Refused | None:
        """Why this content of a file can't be taken, if it has a secret."""
        for _, rule in self.redactor.found_in(data.decode(errors="replace")):
            return Refused("has a secret", path=path, why=rule, remedy="take it out")
        return None

    def edited(self, path: str, data: bytes, says: Iterable[str], agent: str = "", **change: Any) -> Edited:
        """The record of an edit: that a file was saved with this `data`, and the `change` that this is."""
        trace = self.store.trace(path)
        return Edited(agent=agent, file=path, by=trace.by, saved=trace.at, sha=sha(data), says=tuple(says), **change)

    def take(self, edit: Edit, data: bytes) -> None:
        """An edit that the file with this `data` is. Refused if one record can't hold it."""
        if len(data) > _LARGE:  # else it fits
            check_size(edit.record.file, len(msgspec.json.encode(edit.record)))
        self.noticed.edits.append(edit)

    def find(self, path: str, text: str, *, settles: bool = False) -> None:
        self.noticed.findings.append(Repair(path, text, settles=settles))

    def lags(self, path: str, seq: int) -> None:
        text = f"was at record {seq}; Satchel updates it to record {self.moment.seq}"
        self.noticed.findings.append(Repair(path, text, is_lag=True))

    def judge(
        self,
        agent: AgentMoment,
        path: str,
        data: bytes,
        stamped: Stamped,
        is_ours: bool,
        edited: Callable[[Looking, AgentMoment, str, bytes], None],
    ) -> None:
        """The finding about one content of a plan or a state, in the file or about to be saved. `edited` judges one
        that differs from what the run wrote."""
        if (later := ahead(path, stamped, self.moment)) is not None:
            self.refuse(path, later)
        elif is_ours:
            assert stamped.stamp is not None
            if stamped.stamp.seq < self.moment.seq:
                self.lags(path, stamped.stamp.seq)
        elif self.is_merged(agent, path, sha(data)):
            self.find(path, "contains an edit that was merged before; Satchel writes the file again")
        else:
            edited(self, agent, path, data)

    def is_merged(self, agent: AgentMoment, path: str, sha: str) -> bool:
        """Whether this very edit already counts: a crash has prevented the file from being written again."""
        return agent.edits.get(path) == sha


def versions_put(store: Store, moment: Moment) -> set[tuple[str, str]]:
    """Path and hash of the versions in files/ that count or have counted, as far back as the journal goes: whether a
    program has put them or a person."""
    found = {(FILES + path, file.content.sha256) for path, file in moment.root.files.items()}
    try:
        lines = journal.read(store, after=journal.first_kept(store) - 1).lines
    except Damaged:
        return found
    for record in (line.record for line in lines):
        match record:
            case FileWritten(path=path, content=content) if content is not None:
                found.add((FILES + path, content.sha256))
            case Edited(file=path, written=content) if content is not None:
                found |= {(path, content.sha256), (path, record.sha)}
    return found


def check_size(path: str, size: int) -> None:
    """Refused if a person has added more text to a file than one record can hold."""
    if size > EDIT_BYTES:
        raise Refused(
            "is changed by too much",
            path=path,
            why=f"the change has {size:,} bytes, and one record holds {EDIT_BYTES:,}",
            remedy="take the long text out, put it into a file of its own, and name that file here",
        )


# What the bytes of a readable file alone tell: its run, and its moment


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mark_of(data: bytes, trace: Trace) -> str:
    """The SHA-256 of an edit of messages.jsonl. A person may cut a conversation off at the same message again, so of a
    cut the time counts, too. All other edits change nothing the second time."""
    return sha(data + trace.at.encode() if b'"cut"' in data else data)


class _OfRun(msgspec.Struct):
    run_id: str


_of_run = decoder(_OfRun)


def is_of_run(data: bytes, run_id: str) -> bool:
    """A JSON file of another run may be untouched too. It must not be taken for an old one of this run, because it
    would be lost."""
    try:
        return bool(_of_run.decode(data).run_id == run_id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def object_of_run(data: bytes, path: str, run_id: str, remedy: str) -> dict[str, Any]:
    """The object that a JSON file of this run holds. InvalidFile if it is not JSON, Refused if it holds something else
    or is another run's. `remedy` says what may be edited in it."""
    found = jsontext.load(decode(data, path), path)
    if not isinstance(found, dict):
        raise Refused("is no longer an object", path=path, remedy=remedy)
    if found.get("run_id", run_id) != run_id:
        raise foreign(path, f"it says it belongs to the run {short(found['run_id'])}")
    return found


def ahead(path: str, stamped: Stamped, moment: Moment) -> Refused | None:
    """The message about a file from a later moment than the journal's; None if it is not."""
    stamp = stamped.stamp
    if stamp is None or (stamp.seq <= moment.seq and stamp.epoch <= moment.epoch):
        return None
    return Refused(
        f"is newer (record {stamp.seq}) than the journal (record {moment.seq})",
        path=path,
        why="the folder was copied during the run, or the journal was replaced by an older one",
        remedy="copy the whole folder again, or move this file away to continue from the journal",
    )


def foreign(path: str, why: str) -> Refused:
    return Refused(
        "does not belong to this run",
        path=path,
        why=why,
        remedy="to change the plan or the data, edit the file of this run",
    )


SIDES: tuple[Side, ...] = ("theirs", "ours", "edited")
_OPS: dict[str, ChangeKind] = {"add": "values_added", "replace": "values_replaced", "remove": "values_removed"}


def with_choices(
    conflicts: Sequence[FileConflict], moment: Moment, noticed: Callable[[Side], Noticed]
) -> Iterator[FileConflict]:
    """The conflicts with what each choice would do. `noticed`: looks at the files as if a person had chosen that side
    for all of them."""
    looks = [(side, noticed(side)) for side in SIDES] if conflicts else []
    for conflict in conflicts:
        yield replace(conflict, choices=tuple(_choice(conflict, moment, side, found) for side, found in looks))


def _choice(conflict: FileConflict, moment: Moment, side: Side, noticed: Noticed) -> ConflictChoice:
    path = conflict.path
    refused = [str(each.error) for each in noticed.refusals if each.path == path]
    refused += [str(each.places[0]) for each in noticed.questions if each.path == path]
    counts: Counter[ChangeKind] = Counter()
    counts["left"] = len(conflict.places) if side == "ours" else 0
    says = list[str]()
    for edit in (each for each in noticed.edits if each.record.file == path):
        counts.update(_counted(moment.agents[edit.record.agent], edit))
        says += edit.record.says
    return ConflictChoice(side, {kind: count for kind, count in counts.items() if count}, (*says,), "; ".join(refused))


def _counted(agent: AgentMoment, edit: Edit) -> Mapping[ChangeKind, int]:
    """The changes of an edit."""
    found: Counter[ChangeKind] = Counter(_OPS[str(each["op"])] for each in edit.record.patch)
    changes = edit.changes
    if changes is not None:
        found["added"] = len(changes.added)
        found["done"] = sum(pair.after.is_work for pair in changes.ticked)
        found["again"] = sum(pair.after.is_work for pair in (*changes.unticked, *changes.restarted))
        found["dropped"] = len(changes.cancelled) + len(changes.removed)
        found["revived"] = len(changes.revived)
        found["reworded"] = len(changes.reworded)
        found["moved"] = max(len(changes.nested), changes.moved)
        found["text"] = int(changes.prose)
        found["results"] = _results(agent, edit.record)
    return found


def _results(agent: AgentMoment, record: Edited) -> int:
    """How many results of steps would no longer count. What effects have returned is kept."""
    ended = sum(agent.results[key].steps for key in record.redone if key in agent.results)
    begun = [key for key in (*record.redone, *record.dropped) if key in agent.scopes and key not in agent.results]
    return ended + sum(not each.effect for key in begun for each in agent.scopes[key].done.values())
