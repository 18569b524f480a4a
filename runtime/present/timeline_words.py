"""Records in words for a timeline: each with the time that it, or the item that it ends, has taken."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import moment_of
from ...workspace.journal import records
from ...workspace.journal.records import Line
from ...workspace.state import folder_of_agent
from ...workspace.views import RecordWords, describe_record, place_words


class TimelineEvent(Struct, frozen=True):
    """A record in words, without its time and its outputs, which a face shows apart: `took` in milliseconds (None: not
    known), and the `files` of the workspace that it is about."""

    seq: int
    at: str
    words: RecordWords
    took: int | None
    files: tuple[str, ...]


class Timeline:
    """Puts records into words in their order. The title of an ended item, and how long it took, are known if its
    beginning was among them."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[str, str]] = {}  # the time and the title

    def of(self, line: Line) -> TimelineEvent:
        record, took, files = line.record, None, tuple[str, ...]()
        title = place = ""
        match record:
            case records.StepCompleted():
                took, record = record.ms, replace(record, ms=0)
            case records.ScopeBegun():
                self._begun.setdefault((record.agent, record.scope), (line.at, record.title))
            case records.ScopeFailed() | records.ScopeCommitted():
                began, title = self._begun.pop((record.agent, record.scope), ("", ""))
                place = place_words(record.agent, record.scope)
                first, last = moment_of(began), moment_of(line.at)
                took = round((last - first).total_seconds() * 1000) if first and last else None
        match record:
            case records.ScopeCommitted():
                files = tuple(folder_of_agent(record.agent) + f"outputs/{name}" for name in record.outputs)
                record = replace(record, outputs={})
            case records.PartialPromoted():
                files = (record.file,)
        words = describe_record(record)
        if title:
            words = words._replace(text=f"{place}  {title}{words.text.removeprefix(place)}")
        return TimelineEvent(line.seq, line.at, words, took, files)
