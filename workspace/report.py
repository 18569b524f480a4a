"""The opening report: what was found, what was done about it, and what is wanted from a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .errors import SatchelError
from .looking import Look
from .moment import Moment
from .record import Doubt, now
from .store import Store

PATH = ".satchel/report.json"
Kind = Literal["found", "edited", "done", "wanted"]


class Remark(msgspec.Struct, frozen=True):
    kind: Kind
    text: str


@dataclass(slots=True)
class Report:
    """Grows while a workspace is opened and run."""

    remarks: list[Remark] = field(default_factory=list)
    was_clean: bool = True
    at: str = field(default_factory=now)

    def add(self, kind: Kind, text: str) -> None:
        self.remarks.append(Remark(kind, text))

    def has(self, kind: Kind) -> bool:
        return any(remark.kind == kind for remark in self.remarks)

    def found(self, seen: Look) -> None:
        self.was_clean = seen.moment.clean
        self.add("found", describe(seen))
        for complaint in seen.complaints:
            self.add("done", complaint)

    def save(self, store: Store) -> None:
        data = msgspec.json.encode({"format": 1, "at": self.at, "remarks": self.remarks})
        store.replace(PATH, msgspec.json.format(data, indent=2) + b"\n", sync="data")


def last(store: Store) -> list[Remark]:
    """The remarks of the last opening."""
    try:
        return msgspec.json.decode(store.read(PATH).data, type=_Saved).remarks
    except (FileNotFoundError, SatchelError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


class _Saved(msgspec.Struct):
    remarks: list[Remark]


def describe(seen: Look) -> str:
    """One line on how the last run of this workspace ended."""
    moment = seen.moment
    if moment.seq == 0:
        return "a new run"
    if not moment.clean:
        return f"the last process did not end in an orderly way; everything up to record {moment.seq} is there"
    if moment.status == "running":  # repaired since, and not started again
        return f"interrupted, and repaired since; everything up to record {moment.seq} is there"
    return f"{moment.status} at record {moment.seq}"


def question(doubt: Doubt, moment: Moment, url: str) -> str:
    """A doubt, as a person can answer it."""
    scope = moment.agents[doubt.agent].scopes.get(doubt.scope)
    title = scope.title if scope else ""
    place = f" of {title!r}" if title else ""
    place += f" of the agent {doubt.agent}" if doubt.agent else ""
    what = f"{doubt.step}{doubt.call}{place}"
    if doubt.why == "unclaimed":
        fact = (
            f"{what} would begin, but an earlier attempt has already called {doubt.step} with other arguments. "
            "Is it the same action? If it is to be told apart, give it a name: "
            f"{doubt.step}.named(...)"
        )
    elif doubt.why == "unreached":
        fact = f"{what} began in an earlier attempt and was not called again. Has it happened?"
    else:
        fact = f"{what} began, and nothing says how it ended ({doubt.cause or 'a crash'}). Has it happened?"
    return (
        f"{doubt.id}: {fact}\n"
        f"    it has:     satchel resolve {url} {doubt.id} --done RESULT\n"
        f"    it has not: satchel resolve {url} {doubt.id} --redo"
    )
