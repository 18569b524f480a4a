"""Records of what people change: a readable file, or how far the run is."""

from __future__ import annotations

from msgspec import Raw, Struct, field

from ...todo import Row, Splice
from .base import NOTHING, Key, Patch, Record


class StepEdit(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person wants of one recorded call: done again, or taken to have returned something else."""

    scope: str
    key: Key
    redo: bool = False
    result: Raw = NOTHING
    blob: str = ""


class Edited(Record, frozen=True, kw_only=True, tag="edited"):
    """A person has changed a readable file, and it counts from here on.

    `base` is the record at which the file stood when it was edited, absent if it didn't say. `sha` is that of the file
    as it was found, so that the same bytes, come back after a power failure, are not taken for another edit.
    """

    file: str
    by: str
    sha: str
    saved: str = ""
    base: int | None = None
    patch: Patch = field(default_factory=list)  # of the agent's data, or of what workspace.yaml says
    plan: tuple[Splice, ...] = ()
    outline: list[Row] = field(default_factory=list)
    redone: tuple[str, ...] = ()  # scopes to be done again: their steps anew, their effects kept
    dropped: tuple[str, ...] = ()  # scopes that had begun and won't be entered any more
    step: StepEdit | None = None
    says: tuple[str, ...] = ()  # the same in words


class Rewound(Record, frozen=True, kw_only=True, tag="rewound"):
    """The run went back to record `to`, as the checkpoint `file` has it. The records behind this one say how."""

    to: int
    file: str
    by: str
