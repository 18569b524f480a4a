"""Records of the agent's work apart from its calls: scopes and commits, the plan, sub-agents, the inbox."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from ...todo import Row, Splice
from .base import NOTHING, Failure, Key, Patch, Record


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
    effects that earlier attempts have done and this one has not called."""

    scope: str
    patch: Patch = field(default_factory=list)
    plan: tuple[Splice, ...] = ()
    result: Raw = NOTHING
    blob: str = ""
    outputs: dict[str, Output] = field(default_factory=dict)
    cancelled: str | None = None
    planned: str = ""  # as in PlanChanged
    uncalled: tuple[Key, ...] = ()


class Uncalled(Record, frozen=True, kw_only=True, tag="effects.uncalled"):
    """The agent has returned, and leaves the scope open: the effects that earlier attempts at it have done and no later
    one has called. Where there are none any more, `calls` is empty."""

    scope: str
    calls: tuple[Key, ...] = ()


class PlanChanged(Record, frozen=True, kw_only=True, tag="plan.changed"):
    """The plan has changed. `outline` has the places of the tasks afterwards, if that was worth keeping. `planned` is
    the hash of the arguments of the `run.plan` that has written it."""

    plan: tuple[Splice, ...]
    outline: list[Row] = field(default_factory=list)
    by: Literal["agent", "person", "runtime"]
    person: str = ""  # who that is, as far as the storage tells
    why: str = ""
    planned: str = ""


class Message(Record, frozen=True, kw_only=True, tag="message"):
    """One message of the conversation. Counts when its scope has committed."""

    scope: str
    role: str
    content: Raw


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
