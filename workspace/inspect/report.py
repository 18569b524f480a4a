"""The opening report: what was found, what was done, and what a person has to do."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct, field

from ..base import SatchelError
from ..formats import decoder, jsontext
from ..journal import now
from ..secrets import Redactor
from ..store import FileChanged, Store, Version, read_own
from ..views import AtOnce, Behind
from .load import Look

PATH = ".satchel/report.json"
NEW = "a new run"
Kind = Literal["found", "edited", "done", "wanted"]


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """`version`: that of the `file` that it is about. It is over when a person has changed that file since."""

    kind: Kind
    text: str
    file: str = ""
    version: Version = ""


class _File(msgspec.Struct, kw_only=True):
    format: int = 1
    at: str = ""
    remarks: list[Remark]


_file = decoder(_File)


class Report(Struct):
    """Grows while a workspace is opened and run."""

    remarks: list[Remark] = field(default_factory=list)
    late: list[Remark] = field(default_factory=list)  # those that came after the report had been shown
    was_clean: bool = True
    at: str = field(default_factory=now)
    redactor: Redactor | None = None  # of the workspace, once its definition is known
    _saved: bytes = b""

    def __repr__(self) -> str:
        return f"Report(remarks={self.remarks!r}, was_clean={self.was_clean!r}, at={self.at!r})"

    def add(self, kind: Kind, text: str, file: str = "", version: Version = "") -> None:
        self.remarks.append(Remark(kind, self.redactor.text(text) if self.redactor else text, file, version))

    def add_late(self, kind: Kind, text: str) -> None:
        """A remark at the stop of the run."""
        self.add(kind, text)
        self.late.append(self.remarks[-1])

    def has(self, kind: Kind) -> bool:
        return any(remark.kind == kind for remark in self.remarks)

    def found(self, seen: Look) -> None:
        self.was_clean = seen.moment.clean
        self.add("found", describe(seen))
        for complaint in seen.complaints:
            self.add("done", complaint)

    def save(self, store: Store, behind: Behind | None = None) -> None:
        text = self.text()
        if text != self._saved:
            self._saved = text
            (behind or AtOnce()).do(PATH, partial(store.replace, PATH, text, sync="data"))

    def text(self) -> bytes:
        return jsontext.encode(_File(at=self.at, remarks=self.remarks))


class ReportDocument:
    """The report as one of the projector's files."""

    def __init__(self, report: Report, store: Store, behind: Behind):
        self._report, self._store, self._behind = report, store, behind

    def write(self) -> None:
        self._report.save(self._store, self._behind)


def amend(store: Store, report: Report) -> None:
    """Save a report once more after the workspace was closed, unless there is one of a later opening."""
    with suppress(FileNotFoundError, FileChanged, msgspec.MsgspecError):
        there = store.read(PATH)
        if _file.decode(there.data).at == report.at:
            store.replace(PATH, report.text(), if_version=there.version)


def last(store: Store) -> list[Remark]:
    """The remarks of the last opening, without those that are over. That it was new is no news of a run that has
    begun."""
    found: _File | None = None
    with suppress(SatchelError):
        found = read_own(store, PATH, _file)
    return [each for each in found.remarks if each.text != NEW and not _is_over(store, each)] if found else []


def _is_over(store: Store, remark: Remark) -> bool:
    return bool(remark.file) and (store.version(remark.file) or "") != remark.version


def describe(seen: Look) -> str:
    """One line about how the last run of this workspace ended."""
    moment = seen.moment
    if moment.is_new:
        return NEW
    if not moment.clean:
        return f"the last process crashed or was killed; everything up to record {moment.seq} is kept"
    if moment.status == "running":  # repaired since, and not started again
        return f"interrupted, then repaired; everything up to record {moment.seq} is kept"
    return f"{moment.status} at record {moment.seq}"
