"""Redact a text that arrives in pieces: a secret may be split over two of them."""

from __future__ import annotations

from .redactor import Redactor, Span

LAG = 256
"""Characters at the end that wait for more text, if there are patterns. A longer match may show its beginning."""

_CONTEXT = 256
"""Characters before that a pattern may look back at."""

_KEPT = 4096


class RedactedStream:
    """`text` is what can be shown so far; it only grows. Nothing of a secret is in it, except of a match of a pattern
    that begins more than LAG characters before its end has arrived."""

    def __init__(self, redactor: Redactor):
        self._redactor = redactor
        self._before = ""  # the end of what is shown and not in `_raw`
        self._raw = ""  # what is not shown yet, and some text before
        self._shown = 0  # characters of it

    def follow(self, text: str) -> None:
        """Before the first piece: the stream continues a text that is shown already."""
        self._before = text[-_CONTEXT:]

    def add(self, text: str) -> str:
        """The next piece. Returns what can be shown now, in addition."""
        self._raw += text
        lag = LAG if self._redactor.has_patterns else 0
        return self._show(min(self._redactor.rest(self._raw), len(self._raw) - lag))

    def end(self) -> str:
        """No more text comes. Returns the rest of what can be shown."""
        return self._show(len(self._raw))

    def _show(self, up_to: int) -> str:
        parts, at = [], self._shown
        spans = self._spans()
        for begin, end, marker in spans:
            if end <= at:
                continue
            if begin >= up_to:
                break
            if end > up_to:  # more text may make it longer
                up_to = begin
                break
            parts += [self._raw[at:begin], marker] if begin >= at else []
            at = end
        if up_to > at:
            parts.append(self._raw[at:up_to])
            at = up_to
        self._shown = at
        if self._shown > _KEPT:
            self._cut(spans)
        return "".join(parts)

    def _spans(self) -> list[Span]:
        begins = len(self._before)
        found = self._redactor.spans(self._before + self._raw, begins)
        return [Span(begin - begins, end - begins, marker) for begin, end, marker in found]

    def _cut(self, spans: list[Span]) -> None:
        """Forget what was shown long ago, up to a place that is in no secret: a pattern finds the same after it."""
        cut, before, at = self._shown - _CONTEXT, self._before, 0
        for begin, end, marker in spans:
            if begin >= cut:
                break
            before += self._raw[at:begin] + marker
            at, cut = end, max(cut, end)
        before += self._raw[at:cut]
        self._before, self._raw, self._shown = before[-_CONTEXT:], self._raw[cut:], self._shown - cut
