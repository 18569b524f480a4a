"""The text of a web page."""

from __future__ import annotations

from html.parser import HTMLParser


def without_tags(html: str) -> str:
    """The text of a page, one paragraph for each block."""
    page = _Page()
    page.feed(html)
    page.close()
    return "".join(page.parts)


class _Page(HTMLParser):
    _SILENT = frozenset(("head", "script", "style", "template", "nav", "pre", "svg"))
    _INLINE = frozenset(
        ("a", "abbr", "b", "cite", "code", "em", "i", "kbd", "mark", "q", "small", "span", "strong", "u")
    )

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "body":
            self._silent.clear()  # a head need not be closed
        elif tag in self._SILENT:
            self._silent.append(tag)
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)

    def _break(self, tag: str) -> None:
        if tag not in self._INLINE:
            self.parts.append("\n\n")
