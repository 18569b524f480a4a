"""The content of outputs/brief.md. The same documents and summaries give the same text."""

from __future__ import annotations

from collections.abc import Iterator

from state import State


def compose(state: State) -> str:
    return "\n\n".join(_blocks(state)) + "\n"


def _blocks(state: State) -> Iterator[str]:
    summaries = state.summaries
    yield f"# Digest of {_count(len(summaries), 'document')}"
    for by in sorted({summary.by for summary in summaries.values()}):
        yield f"Summaries: {by}."
    for name in state.documents:
        if name in summaries:
            yield f"## {name}"
            yield summaries[name].text.strip()
            yield f"Source: {summaries[name].source}"
    left_out = [f"- {name}: {_reason(state, name)}" for name in _left_out(state)]
    if state.not_read:
        left_out.append(f"- {_count(state.not_read, 'more document')}: beyond the limit in workspace.yaml")
    if left_out:
        yield "## Left out"
        yield "\n".join(left_out)


def _left_out(state: State) -> list[str]:
    dropped = [name for name in state.documents if name not in state.summaries]
    return [*dropped, *(name for name in state.left_out if name not in state.documents)]


def _reason(state: State, name: str) -> str:
    return state.left_out.get(name, "its item was cancelled")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
