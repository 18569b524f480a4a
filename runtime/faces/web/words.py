"""Facts as words of a page: times, sizes, states. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from ....workspace.base import moment_of, visible
from ....workspace.inbound.approvals import with_changes
from ....workspace.state import tone
from ... import present

LONG = 20_000
"""Characters of one text that a page shows at most."""


def ago(at: str) -> Markup:
    """`3 min ago`, with the whole time as its title. The script keeps it current."""
    then = moment_of(at)
    if then is None:
        return escape(visible(at[:40]))
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        then.isoformat(), _whole(then), present.ago(then)
    )


def clock(at: str) -> Markup:
    """The time of day in UTC, with the date if that is not today. The script puts it into the zone of the browser."""
    then = moment_of(at)
    if then is None:
        return escape(visible(at[:40]))
    is_today = then.date() == datetime.now(UTC).date()
    return Markup('<time datetime="{}" title="{}" data-clock>{}</time>').format(
        then.isoformat(), _whole(then), f"{then:%H:%M:%S} UTC" if is_today else _whole(then)
    )


def _whole(then: datetime) -> str:
    return f"{then:%Y-%m-%d %H:%M:%S} UTC"


def zone() -> str:
    """The zone of this machine, for times that people type without one."""
    return datetime.now().astimezone().tzname() or "UTC"


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?: UTC|Z)(?: \([^()]* ago\)| \(in [^()]*\))?")


def timed(text: object, *times: str) -> Markup:
    """A sentence of Satchel with these times in it as on the rest of the page. Without how long ago they are, which
    would soon be untrue. Others stay: they are in the words of agents and people."""
    shown, found, at = visible(str(text)), Markup(), 0
    own = {then.replace(microsecond=0) for each in times if (then := moment_of(each)) is not None}
    for match in _TIME.finditer(shown):
        then = moment_of(f"{match[1]}T{match[2]}Z")
        if then is not None and then.replace(microsecond=0) in own:
            found += escape(shown[at : match.start()]) + clock(then.isoformat())
            at = match.end()
    return found + escape(shown[at:])


def one_line(text: object, width: int = 120) -> str:
    """A text in one line, cut to `width` characters."""
    line = " ".join(str(text)[: width * 8].split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def cut(text: object, width: int = LONG) -> str:
    """The beginning of a text, or of what an error says."""
    return str(text)[:width]


def as_json(value: Any, indent: int | None = 2) -> str:
    """JSON for people."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def number(count: float) -> str:
    """`1,200`."""
    return f"{count:,}"


def query(values: Mapping[str, object]) -> str:
    """The query of a URL, without what is empty."""
    return urlencode({name: str(value) for name, value in values.items() if value})


def as_typed(text: str) -> Markup:
    """A text in a field that a person edits: escaped, but each character as it is. HTML would take CR for a LF."""
    return escape(text).replace("\r", Markup("&#13;"))


FILTERS: dict[str, Callable[..., Any]] = {
    "tone": tone,
    "ago": ago,
    "clock": clock,
    "timed": timed,
    "one_line": one_line,
    "cut": cut,
    "as_json": as_json,
    "query": query,
    "number": number,
    "seconds": present.duration,
    "size": present.size,
    "as_typed": as_typed,
    "with_changes": with_changes,
}
"""The filters of the templates."""
