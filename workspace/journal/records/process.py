"""Records of the processes that have the workspace: opening and closing, configuration, costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct, field

from .base import NOTHING, Failure, Record

FORMAT = 1
"""Of the journal. Every `opened` record has it, and every segment of another version begins with such a record."""


class Lineage(Struct, frozen=True):
    """The moment of another run that a run began with: its place then, its run_id, and the record."""

    url: str
    run_id: str
    seq: int


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
    url: str = ""  # the place of the workspace; see lifecycle/adopt.py
    why: Literal[
        "run", "recover", "merge", "pause", "forced", "answer", "rewind", "redo", "edit", "prune", "fork", "replay"
    ]
    found: Literal["new", "clean", "crash", "files"]  # files: the journal was lost, and the readable files were used
    definition: dict[str, object] | None = None  # of workspace.yaml, at the first opening; later see `edited`
    checkpoint: str = ""  # the file that was loaded; empty: the journal was read from its beginning
    arrived: str = ""  # how the run came here from another place, in words, if this is its first opening here
    took_over: str = ""  # in a bucket: the process that had the run and did not close it
    forked: Lineage | None = None  # of a fork, at its first opening
    boot: str = ""  # the boot of the machine, if the process is to run the agent
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


class Resource(Record, frozen=True, kw_only=True, tag="resource"):
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
    """A cost that the agent reports (`run.spend`). `n`, outside a step: the number of equal ones before it in
    `scope`."""

    tokens: int = 0
    usd: float = 0.0
    scope: str = ""
    n: int | None = None

    @property
    def kind(self) -> str:
        """Two with the same kind are equal."""
        return f"{self.tokens}/{self.usd}"
