"""A replayed item next to its first time, in lines that are safe to print and fit a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ...control import CallPair, Replayed
from .history import INDENT, called, data_change, line, outcome, pair, short
from .output import fold, remarks
from .words import one_line, size, visible

_ENDS = {
    "effect": "stopped before an effect",
    "missed": "not reached",
    "failed": "failed",
    "paused": "paused",
    "waiting": "waiting for a person",
    "sleeping": "sleeping",
}
_LONG = 10_000  # characters that are compared


def told(found: Replayed, width: int, *, with_report: bool) -> Iterator[str]:
    title = f"{found.item} ({one_line(found.title)!r})"
    yield line(f"{title} of {found.url} again in {found.to}, from record {found.seq:,}", width, bold=True)
    prompts = (f"prompt {name}@{version}" for name, version in found.prompts.items())
    changed = [*(f"{key} = {short(value)}" for key, value in found.settings.items()), *prompts]
    yield line(f"set     {', '.join(changed) or 'nothing'}", width)
    yield from remarks(found.report[1:], width) if with_report else ()
    if found.end != "done":
        why = f": {one_line(found.reason, 400)}" if found.reason and found.end != "waiting" else ""
        yield "\n".join(fold(visible(f"{_ENDS[found.end]}{why}"), width, 2))
    yield from _part("steps and effects", [_call(each, width) for each in found.calls], width)
    yield from _part("state.json", [data_change(each, width) for each in found.data or ()], width)
    yield from _part("outputs", [*_outputs(found, width)], width)
    yield ""
    first, second = found.first, found.second
    if first.result != second.result and found.end == "done":
        yield line(f"result  {pair(short(first.result, _LONG), short(second.result, _LONG), width)}", width)
    facts = [f"{first.ms:,} ms -> {second.ms:,} ms"]
    facts += [f"{first.tokens:,} -> {second.tokens:,} tokens"] if first.tokens or second.tokens else []
    facts += [f"{first.usd:.4g} -> {second.usd:.4g} usd"] if first.usd or second.usd else []
    yield line(f"cost    {', '.join(facts)}", width)
    if found.is_same:
        yield "no difference"


def _part(title: str, lines: list[str], width: int) -> Iterator[str]:
    if lines:
        yield from ("", line(title, width, bold=True), *lines)


def _call(each: CallPair, width: int) -> str:
    call = each.new or each.old
    assert call is not None
    sign, colour = (
        ("=", None)
        if each.is_same
        else ("~", "yellow")
        if each.old and each.new
        else (("+", "green") if each.new else ("-", "red"))
    )
    above = f"{each.agent}:" if each.agent else ""
    name = f"{INDENT}{sign} {above}{called(call, width)}  "
    room = max(24, width - len(name)) if width else 0
    if each.kept:
        said = "not done again"
    elif each.is_same or not (each.old and each.new):
        said = outcome(call, room)
    else:
        said = pair(outcome(each.old, _LONG), outcome(each.new, _LONG), room)
    return line(name + said, width, fg=colour, dim=each.is_same)


def _outputs(found: Replayed, width: int) -> Iterator[str]:
    old, new = found.first.outputs, found.second.outputs
    for path in dict.fromkeys((*old, *new)) if found.end == "done" else ():
        was, now = old.get(path), new.get(path)
        if was and now:
            sign, said = (
                ("=", size(now.bytes)) if was.sha256 == now.sha256 else ("~", f"{size(was.bytes)} -> {size(now.bytes)}")
            )
        else:
            sign, said = ("+", size(now.bytes)) if now else ("-", size(was.bytes if was else 0))
        yield line(f"{INDENT}{sign} outputs/{path}  {said}", width, dim=sign == "=")
