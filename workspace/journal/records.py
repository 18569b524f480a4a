"""Records: what each says, and what a run does, as records: its processes, with their configuration and costs; scopes
and commits, the plan, sub-agents, the inbox; the calls of steps and effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field

from ..plan import Splice, TaskRow

Count = Annotated[int, Meta(ge=0)]

NOTHING = Raw(b"")
"""A result that is not in the record itself."""

Patch = list[dict[str, object]]
"""A JSON Patch (RFC 6902) with the operations add, remove and replace."""

Key = tuple[str, str, int]
"""Identifies a call in its scope: step name, hash of the arguments, number of equal calls before it."""


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """What happened, and to which agent of the tree: `agent` is its path, `researcher/reader`, empty for the root.

    `scope`, if there is one, is an item's id, `_NAME` for a named scope, or empty for the agent itself.
    """

    agent: str = ""


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception as text. If it must be raised again, also its parts."""

    kind: str
    message: str
    where: tuple[str, ...] = ()  # the lines of the agent's own code that it came through, outermost first
    types: tuple[str, ...] = ()  # its class and those above it, as `module:name`
    args: Raw = NOTHING  # JSON array; absent if JSON can't hold them
    attributes: Raw = NOTHING  # JSON object of the attributes that JSON can hold
    members: Raw = NOTHING  # JSON array of the failures in a group


class OfCall(Record, frozen=True, kw_only=True):
    """A record about one call. `no` is its number in the scope, `call` a preview of its arguments for people."""

    scope: str
    no: int
    step: str
    args: str  # blake2b-64 of the canonical JSON of the arguments, in hex
    n: int
    call: str = ""
    prompts: dict[str, str] = {}  # the files of prompts/ that went into it, each with the start of its SHA-256

    @property
    def key(self) -> Key:
        return self.step, self.args, self.n


class SavedFile(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A version of a file in files/: its `text`, or the blob with its bytes, if they are long or no text."""

    sha256: str
    bytes: Count
    text: str = ""
    blob: str = ""


FORMAT = 1
"""Of the journal. Every `opened` record has it, and every segment of another version begins with such a record."""


class Lineage(Struct, frozen=True):
    """The moment of another run that a run began with: its place then, its run_id, and the record."""

    url: str
    run_id: str
    seq: int


class RestoredFrom(Struct, frozen=True, omit_defaults=True):
    """A backup from which the run was restored, because its machine was lost: `seq` was its last record, `at` its time,
    `id` tells one restoration from another. `certain`: a person has said that nothing was done after that record."""

    url: str
    source: str
    seq: int
    at: str
    id: str
    certain: bool = False


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """A process took the lease. `found` is how the earlier one had ended."""

    format: int

    run_id: str
    run_nonce: str = ""  # random, drawn when none is known: the keys of the run's effects are derived from it
    satchel: str
    python: str
    host: str
    pid: int
    by: str = ""  # who has started the process: `user@host`
    url: str = ""  # the place of the workspace; see lifecycle/acquire.py
    why: Literal[
        "run",
        "hold",
        "recover",
        "merge",
        "pause",
        "forced",
        "answer",
        "rewind",
        "redo",
        "edit",
        "prune",
        "fork",
        "replay",
    ]
    found: Literal["new", "clean", "crash", "files"]  # files: the journal was lost, and the readable files were used
    definition: dict[str, object] | None = None  # of workspace.yaml, at the first opening; later see `edited`
    checkpoint: str = ""  # the file that was loaded; empty: the journal was read from its beginning
    arrived: str = ""  # how the run came here from another place, in words, if this is its first opening here
    took_over: str = ""  # in a bucket: the process that had the run and did not close it
    forked: Lineage | None = None  # of a fork, at its first opening
    restored: RestoredFrom | None = None  # at the first opening after a restoration
    boot: str = ""  # the boot of the machine, if the process runs this agent only: so that its death tells something
    crashed: bool = False  # the earlier process did, and has died of it: not with its machine, nor by a stop
    cut_off: str = ""  # the folder with the end of the journal, if `satchel recover` has just cut it off


class Fenced(Record, frozen=True, kw_only=True, tag="fenced"):
    """In a bucket: from here on the journal belongs to another process. `opening` of its line distinguishes
    attempts."""


EndStatus = Literal["completed", "failed", "waiting", "paused", "sleeping", "cancelled"]


class Closed(Record, frozen=True, kw_only=True, tag="closed"):
    """The process stopped normally. `status` is absent if it did not change the status of the run."""

    status: EndStatus | None = None
    reason: str = ""
    error: Failure | None = None
    until: str = ""  # when a sleeping run wakes: UTC, ISO 8601
    pause_file: str = ""  # the version of pause.yaml, if it agrees with the journal about the pause in force
    untaken: dict[str, str] = field(default_factory=dict)  # see `inbox.untaken`
    checkpoint: str = ""  # the checkpoint of this stop: written right after this record; at a pause, right before it
    result: Raw = NOTHING  # what the agent of a completed run has returned
    blob: str = ""


Occasion = Literal["start", "growth", "time", "item", "milestone", "edit", "stop"]
"""Why a checkpoint was written."""


class Saved(Record, frozen=True, kw_only=True, tag="checkpoint.saved"):
    """A checkpoint was written, and is durable. The last one of a process is named in its `closed`."""

    file: str
    why: Occasion
    bytes: int
    sha256: str


class Pruned(Record, frozen=True, kw_only=True, tag="pruned"):
    """Old files are removed, from here on: the journal up to record `up_to` (0: nothing of it), which the checkpoint
    `base` covers, and so many files of each kind."""

    by: str
    up_to: int = 0
    base: str = ""
    files: dict[str, int] = field(default_factory=dict)  # by folder
    bytes: int = 0


class ResourceChanged(Record, frozen=True, kw_only=True, tag="resource"):
    """A resource was opened or released, with the outcome."""

    name: str
    tier: Literal["application", "infrastructure", "process"]
    event: Literal["opened", "released"]
    outcome: Literal["ok", "failed", "timed_out"] = "ok"
    why: str = ""
    ms: int = 0


class Configured(Record, frozen=True, kw_only=True, tag="configured"):
    """What the run works with from here on: code, settings, prompts, packages, models, by hash or version."""

    config: dict[str, object]


def code_version(config: Mapping[str, object]) -> str:
    """The version of the agent's code in a configuration: the commit of git, if its folder is at one, and the start of
    the hash of its files. Empty in an empty one."""
    commit, files = str(config.get("commit", "")), str(config.get("agent_sha256", ""))[:8]
    return f"{commit} ({files})" if commit else files


class Input(Record, frozen=True, kw_only=True, tag="input"):
    """The arguments of the run's own agent, by parameter, defaults included. At most one in a run."""

    arguments: Raw = NOTHING  # a JSON object
    blob: str = ""


class Spent(Record, frozen=True, kw_only=True, tag="spent"):
    """A cost that the agent reports (`run.spend`). `output`: those of the tokens that the `model` has written. `no`, in
    a step: the number of the call in `scope`. `n`: the number of equal ones before it there, which an earlier attempt
    may have recorded; None in a step. `answer`: of a keeper, which has counted this; its `first_ms` are those until
    the answer began. `unused`: the step that has asked for it before a crash, and not again."""

    tokens: int = 0
    usd: float = 0.0
    output: int = 0
    first_ms: int = 0
    model: str = ""
    scope: str = ""
    no: int | None = None
    n: int | None = None
    answer: str = ""
    unused: str = ""

    @property
    def kind(self) -> str:
        """Two with the same kind are equal."""
        return self.answer or f"{self.tokens}/{self.usd}" + (f"/{self.model}" if self.model else "")


class AnswersGrown(Record, frozen=True, kw_only=True, tag="answers.grown"):
    """So many answers of models, for which earlier processes of this run have asked, have come further at the keeper
    since its last opening. So no crash until now counts."""

    answers: Count


class ScopeBegun(Record, frozen=True, kw_only=True, tag="scope.begun"):
    scope: str
    title: str
    plan: tuple[Splice, ...] = ()


class ScopeFailed(Record, frozen=True, kw_only=True, tag="scope.failed"):
    """A scope's function has raised; the scope stays open."""

    scope: str
    error: Failure
    calls: tuple[Key, ...] = ()  # they run again: their exceptions ended it, or a later one did
    uncounted: bool = False  # it is none of the failures that make a run stuck


class Output(Struct, frozen=True, omit_defaults=True):
    """A file in outputs/ as it was written. `version` is the storage's: if it is the same, the file is unchanged. After
    a move into a bucket the version is another one, but most buckets list the `md5`. So the file need not be read."""

    sha256: str
    bytes: int
    version: str = ""
    md5: str = ""

    def is_in(self, version: str | None) -> bool:
        """Whether a version that the storage shows proves that the file is unchanged."""
        return bool(version) and version in (self.version, self.md5, f'"{self.md5}"')


class ScopeCommitted(Record, frozen=True, kw_only=True, tag="scope.committed"):
    """One atomic commit: state, plan, result, outputs and the messages before it in the same group. `uncalled` are the
    effects that earlier attempts have done and this one has not called. Without a scope, a program has appended these
    messages or rows; with the same `key` it does not append again."""

    scope: str
    patch: Patch = field(default_factory=list)
    plan: tuple[Splice, ...] = ()
    result: Raw = NOTHING
    blob: str = ""
    outputs: dict[str, Output] = field(default_factory=dict)
    cancelled: str | None = None
    planned: str = ""  # as in PlanChanged
    uncalled: tuple[Key, ...] = ()
    key: str = ""  # of the append


class Uncalled(Record, frozen=True, kw_only=True, tag="effects.uncalled"):
    """The agent has returned, and leaves the scope open: the effects that earlier attempts at it have done and no later
    one has called. Where there are none any more, `calls` is empty."""

    scope: str
    calls: tuple[Key, ...] = ()


class PlanChanged(Record, frozen=True, kw_only=True, tag="plan.changed"):
    """The plan has changed. `outline` has the places of the tasks afterwards, if that was worth keeping. `planned` is
    the hash of the arguments of the `run.plan` that has written it."""

    plan: tuple[Splice, ...]
    outline: list[TaskRow] = field(default_factory=list)
    by: Literal["agent", "person", "runtime"]
    person: str = ""  # who that is, as far as the storage tells
    why: str = ""
    planned: str = ""


class Message(Record, frozen=True, kw_only=True, tag="message"):
    """One message of the conversation, or with `log` a row of logs/LOG.jsonl, which has no role. Counts when its scope
    has committed. `after`: the number of the last call that the scope had made before it was added; 0: none."""

    scope: str
    role: str = ""
    content: Raw
    log: str = ""
    after: int = 0


class FileWritten(Record, frozen=True, kw_only=True, tag="file.written"):
    """A program that holds the workspace has put a file into files/, or has removed it: then without `content`."""

    path: str  # below files/
    content: SavedFile | None = None


class AgentBegun(Record, frozen=True, kw_only=True, tag="agent.begun"):
    """`agent` was spawned by its parent, in the parent's scope `scope`."""

    scope: str
    args: str  # as in OfCall
    call: str = ""


class AgentEnded(Record, frozen=True, kw_only=True, tag="agent.ended"):
    """`agent` has returned, or raised."""

    result: Raw = NOTHING
    blob: str = ""
    error: Failure | None = None


class TaskTaken(Record, frozen=True, kw_only=True, tag="task.taken"):
    """A file of inbox/ was given to the agent, in `scope`; again, if that scope has ended without it.

    With `handed_to` it is not the agent's: it is at that place under a hidden name, and only needs its own name. A time
    of a schedule has its `schedule` and when it was `due` in place of content. `unopened`: it was not done, but settled
    because the agent completed without opening its inbox.
    """

    id: str
    scope: str
    file: str
    sha256: str
    kind: Literal["task", "message", "schedule"] = "task"
    schedule: str = ""
    due: str = ""
    unopened: bool = False
    handed_to: str = ""
    content: Raw = NOTHING  # JSON: the text, or what the YAML says
    blob: str = ""


class TaskDone(Record, frozen=True, kw_only=True, tag="task.done"):
    """The agent has done it; the file may be removed."""

    id: str
    moved_to: str = ""  # it was not done but handed on, to this workspace or folder


class Migrated(Record, frozen=True, kw_only=True, tag="migrated"):
    """The agent's data was converted to version `to` of its state type."""

    to: int
    patch: Patch = field(default_factory=list)


class StepStarted(OfCall, frozen=True, kw_only=True, tag="step.started"):
    """An effect is about to begin. Without a later outcome it is in doubt."""

    idempotency_key: str
    arguments: Raw = NOTHING  # left out when they are long
    schema: str = ""  # of the result that it will have, in .satchel/schemas/results/


class StepCompleted(OfCall, frozen=True, kw_only=True, gc=False, tag="step.completed"):
    """A call has returned. Its result is `result`, or the blob named `blob`. There may be tens of thousands, and they
    can't form cycles, so the garbage collector skips them."""

    arguments: Raw = NOTHING  # of a step, if the preview is cut and they are not long; no state of a run has them
    effect: bool = False
    result: Raw = NOTHING
    blob: str = ""
    ms: int = 0
    how: Literal["returned", "interrupted", "restarted", "verified", "resolved", "accepted", "edited", "answered"] = (
        "returned"
    )
    model: str = ""  # the fallback that answered, if the first model did not
    schema: str = ""  # of the result


class StepFailed(OfCall, frozen=True, kw_only=True, tag="step.failed"):
    """A call has raised. `not_done` says that an effect has certainly not happened.

    A `final` one is the outcome of the call: it is raised again at a re-entry, unless a later record names the call
    among its `calls`. `cancelled`: by the agent itself, after `ms`; at a re-entry the call first waits that long to be
    cancelled. `ms` is what this attempt took.
    """

    arguments: Raw = NOTHING  # as in StepCompleted
    error: Failure
    attempt: int = 1
    effect: bool = False
    not_done: bool = False
    final: bool = False
    cancelled: bool = False
    ms: int = 0
    calls: tuple[Key, ...] = ()  # inner calls whose exception ended it: they run again
    schema: str = ""  # of the result that it would have had


class StepRetry(OfCall, frozen=True, kw_only=True, tag="step.retry"):
    """A call has failed for the `attempt`-th time, and is tried again in `wait` seconds. `limited`: a server has too
    many requests, or has asked for the wait."""

    error: Failure
    attempt: int
    wait: float
    limited: bool = False


class StepProgress(OfCall, frozen=True, kw_only=True, tag="step.progress"):
    """The progress of an unfinished call (`run.progress`)."""

    value: Raw


class PartialPromoted(OfCall, frozen=True, kw_only=True, tag="partial.promoted"):
    """The text that a crash or an error left of a streamed answer was put into `file`, for attempt `attempt` + 1."""

    attempt: int
    file: str
    characters: int
    damaged: bool
    cut_off_at: str
    cut_off_by: str
    edited: bool = False  # a person has changed the text before
