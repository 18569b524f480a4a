"""What a run contains, to read: conversations, the files that it has made, images, and JSON of any size, a part at a
time. Text of models and strangers is Markdown without any HTML of its own, with links that lead to the web by http,
https and mailto only, and with images of the run only."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import SatchelError, UsageError, visible
from ....workspace.history import text_changes
from ....workspace.views import texts_in
from ...api import (
    Conversation,
    ConversationMessage,
    Handle,
    RunFile,
    RunStatus,
    is_readable,
    logs_of,
    message_at,
    messages_of,
)
from ...present import MessagePart, message_parts, message_role
from . import reading
from .site import RunRequest, Site, run_url
from .site import query as query_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

FILES = 200
"""Files on one page of their list."""

_LIMIT = 64 << 20
"""Bytes of a file that the page reads at most."""

_IMAGE_LIMIT = 16 << 20

_SHOWN = 200_000
"""Characters of a text that are shown; the download has all."""

_COMPARED = 4_000
"""Lines of each of two texts that are compared."""

_PARTS = 400
"""Parts of messages on one page; what has more is a link."""

_NAMED = 200
"""Files that the texts of one page name and that are looked for: each look may be a request to a bucket."""

_NODES, _TEXT = 40, 2_000  # of a value in a message
_SNIPPET = 100


LONGEST = 12_000
"""Characters of one text that are shown as Markdown: some texts cost more than their length."""

_SCHEMES = ("http", "https", "mailto")
_REL = "noopener noreferrer nofollow"

Find = Callable[[str], str]
"""The URL on this page of a file that a text names; empty if the run has no such file."""


def routes(site: Site) -> list[BaseRoute]:
    shows = {"messages": messages, "files": files, "file": one_file, "image": image, "value": value}
    return [Route(f"/run/{{name:path}}/-/{path}", site.of_run(show)) for path, show in shows.items()]


# Conversations


class ShownPart(Struct, frozen=True):
    """A part of a message as the page shows it: `html`, or `value`, which is folded, or the URL `image`."""

    part: MessagePart
    html: Markup | None = None
    value: reading.Folded | None = None
    image: str = ""
    link: str = ""


class ShownMessage(Struct, frozen=True):
    """A message as the page shows it. `of`: what leads to it, as a query. `left_out`: parts that are not shown."""

    said: ConversationMessage
    role: str
    parts: list[ShownPart]
    of: dict[str, object]
    left_out: int = 0


class FoundMessage(Struct, frozen=True):
    """A message that a search has found, with the text around it: before it, it, and after it."""

    said: ConversationMessage
    role: str
    around: tuple[str, str, str]


def messages(asked: RunRequest) -> Response:
    """A conversation: its end, a page of it, or the messages that have a text in them. live.py keeps the end
    current."""
    return asked.page("messages.html", **message_facts(asked))


def message_facts(asked: RunRequest) -> dict[str, Any]:
    """All that run/messages.html needs besides the name."""
    query = asked.query
    agent, log, text, named = (query.get(name, "").strip()[:200] for name in ("agent", "log", "q", "call"))
    status, problem = asked.handle.status(brief=True), None
    call = asked.handle.history.call(named) if named else None
    logs = [(of, name, place.log.messages) for of, name, place in logs_of(status.moment)] if status.moment else []
    if call is not None:
        agent, log, text = call.agent, "", ""
    elif logs and "agent" not in query and "log" not in query and ("", "") not in [each[:2] for each in logs]:
        agent, log = logs[0][:2]  # the run itself has said nothing
    found = Conversation([], 0, 0, 0)
    try:
        if status.moment and logs:
            places = {"before": asked.number("before"), "after": asked.number("after")}
            if call is not None:
                places = {"until": call.said_before}
            found = messages_of(asked.handle, status.moment, agent, log, text=text, calls=not text, **places)
    except SatchelError as error:
        problem = error
    names = {"agent": agent, "log": log}
    shown = [] if text else [*_shown(found.messages, _reader(asked, heading=4), asked.name, names)]
    return {
        "status": status,
        "logs": logs,
        "names": names,
        "text": text,
        "found": found,
        "messages": shown,
        "hits": [_hit(each, text) for each in found.messages] if text else [],
        "call": call,
        "is_newest": not {"before", "after", "call"} & {*query} or found.end >= found.bytes,
        "problem": problem or status.problem,
    }


def _shown(said: list[ConversationMessage], reader: Reader, run: str, names: dict[str, str]) -> Iterator[ShownMessage]:
    left, tools = _PARTS, dict[str, str]()
    for each in said:
        parts = message_parts(each.content)
        of: dict[str, object] = {"in": "message", **names, "at": each.place}
        shown = [_part(part, reader, run, of | {"part": index}) for index, part in enumerate(parts[:left], 1)]
        for part in parts:
            tools.update({part.id: part.name} if part.kind == "call" and part.id else {})
        named = [_named(part, tools) for part in shown]
        yield ShownMessage(each, message_role(each.role, each.content), named, of, len(parts) - len(shown))
        left -= len(shown)


def _named(shown: ShownPart, tools: dict[str, str]) -> ShownPart:
    """A result with the name of the tool, which only its call has in many shapes."""
    part = shown.part
    if part.kind != "result" or part.name or part.id not in tools:
        return shown
    return replace(shown, part=replace(part, name=tools[part.id]))


def _part(part: MessagePart, reader: Reader, run: str, of: dict[str, object]) -> ShownPart:
    if part.kind in ("text", "thought"):
        if len(part.text) <= LONGEST:
            return ShownPart(part, html=reader.markdown(part.text))
        return ShownPart(part, value=reading.folded(part.text, text=LONGEST))
    if part.kind == "image":
        if data := _bytes_of(part.text, 64):
            is_known = image_type(data) is not None
            url = f"{run_url(run, 'image')}?{query_of(of)}" if is_known and of["at"] != -1 else ""
            return ShownPart(part, image=url)
        return ShownPart(part, link=part.text if urlsplit(part.text).scheme in ("http", "https") else "")
    return ShownPart(part, value=reading.folded(part.value, nodes=_NODES, text=_TEXT))


def _hit(said: ConversationMessage, text: str) -> FoundMessage:
    wanted = text.casefold()
    for each in texts_in(said.content):
        at = each.casefold().find(wanted)
        if at >= 0:
            end = at + len(text)
            around = each[max(0, at - _SNIPPET) : at], each[at:end], each[end : end + _SNIPPET]
            return FoundMessage(said, message_role(said.role, said.content), around)
    return FoundMessage(said, message_role(said.role, said.content), ("", "", ""))


# Images


def image(asked: RunRequest) -> Response:
    """An image of a file or a message, if it is one that browsers show and that has no scripts: not SVG. Its type is
    that of its bytes, whatever its name or its message says."""
    if path := asked.query.get("path", ""):
        data = asked.handle.files.read(path, limit=_IMAGE_LIMIT)
    else:
        part = _part_of(asked)
        data = _bytes_of(part.text) if part is not None and part.kind == "image" else b""
    kind = image_type(data)
    if kind is None:
        raise UsageError("that is no PNG, JPEG, GIF or WebP", remedy="download the file")
    return Response(data, media_type=kind, headers={"content-disposition": "inline"})


def image_type(data: bytes) -> str | None:
    """The type of an image, by how its bytes begin."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _IMAGES.items() if data.startswith(begin)), None)


_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def _bytes_of(text: str, most: int = _IMAGE_LIMIT * 2) -> bytes:
    """The bytes of a `data:` URL, or of base64; empty if it is none."""
    if text.startswith("data:"):
        head, _, text = text.partition(",") if "," in text[:200] else ("", "", "")
        if not head.endswith(";base64"):
            return b""
    try:
        return base64.b64decode(text[: most // 4 * 4].replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


# JSON of any size


class Whole(Struct, frozen=True):
    """A value of a run, parts of which its pages show. `of`: what leads to it, as a query; `title` and `url`: where it
    is."""

    value: Any
    of: dict[str, object]
    title: str
    url: str


def value(asked: RunRequest) -> Response:
    """A part of a value that a page has not shown. For htmx only the part."""
    query = asked.query
    kind, pointer = query.get("in", ""), query.get("path", "")
    if kind not in _WHOLES or (pointer and not pointer.startswith("/")):
        raise UsageError(f"a run has no value {kind}{pointer}", remedy="open the page that shows it")
    whole = _WHOLES[kind](asked)
    part = reading.folded(whole.value, pointer, asked.number("begin") or 0)
    shown: dict[str, Any] = {"whole": whole, "part": part, "above": reading.above(pointer)}
    if asked.request.headers.get("hx-request-type") == "partial":
        return asked.site.page(asked.request, "run/piece.html", name=asked.name, **shown)
    return asked.page("value.html", **shown)


def _of_call(asked: RunRequest) -> Whole:
    found = asked.handle.history.call(asked.text("of"))
    kind = asked.query["in"]
    whole = found.arguments if kind == "arguments" else found.result
    url = f"{run_url(asked.name, 'call')}?{query_of({'of': found.name})}"
    return Whole(whole, {"in": kind, "of": found.name}, f"{found.name} / {kind}", url)


def _of_state(asked: RunRequest) -> Whole:
    at, agent = asked.query.get("at", "latest")[:200], asked.query.get("agent", "")
    shown = asked.handle.history.show(at)
    data = next((each.data for each in shown.agents if each.path == agent), None)
    url = f"{run_url(asked.name, 'at', at)}?{query_of({'agent': agent})}"
    return Whole(data, {"in": "state", "at": at, "agent": agent}, f"state at record {shown.seq:,}", url)


def _of_message(asked: RunRequest) -> Whole:
    said, names = _message_of(asked)
    part, of = asked.number("part"), {"in": "message", **names, "at": said.place}
    url = f"{run_url(asked.name, 'messages')}?{query_of({**names, 'after': str(said.place)})}"
    title = f"message {said.seq:,}"
    if part is None:
        return Whole(said.content, of, title, url)
    parts = message_parts(said.content)
    if not 0 < part <= len(parts):
        raise UsageError(f"the message has no part {part}", remedy="open the conversation again")
    found = parts[part - 1]
    return Whole(found.text if found.text else found.value, of | {"part": part}, f"{title} / {found.kind}", url)


def _of_file(asked: RunRequest) -> Whole:
    path = asked.query.get("file", "")
    url = f"{run_url(asked.name, 'file')}?{query_of({'path': path})}"
    return Whole(_json(asked.handle.files.read(path, limit=_LIMIT)), {"in": "file", "file": path}, path, url)


_WHOLES: dict[str, Callable[[RunRequest], Whole]] = {
    "arguments": _of_call,
    "result": _of_call,
    "state": _of_state,
    "message": _of_message,
    "file": _of_file,
}


def _part_of(asked: RunRequest) -> MessagePart | None:
    said, _ = _message_of(asked)
    return next(iter(message_parts(said.content)[(asked.number("part") or 1) - 1 :]), None)


def _message_of(asked: RunRequest) -> tuple[ConversationMessage, dict[str, str]]:
    """The message that a query leads to, and the names of its agent and its log."""
    names = {name: asked.query.get(name, "") for name in ("agent", "log")}
    status = asked.handle.status(brief=True)
    if status.moment is None:
        raise status.problem or UsageError("the run can't be read")
    return message_at(asked.handle, status.moment, **names, at=asked.number("at") or 0), names


# Files


def files(asked: RunRequest) -> Response:
    """The files that a run has made, by name: outputs, recovered text, and versions that were not taken."""
    begin = asked.number("begin") or 0
    found = [each for each in asked.handle.files.list() if _is_shown(each)]
    part: dict[str, Any] = {"files": found[begin : begin + FILES], "begin": begin, "total": len(found), "most": FILES}
    return asked.page("files.html", **part)


def _is_shown(file: RunFile) -> bool:
    return bool(_MADE.search(file.path))


_MADE = re.compile(r"^(agents/[^/]+/)*(outputs|recovered|files)/|\.rejected(-[0-9]+)?(\.[^/.]*)?$")


def one_file(asked: RunRequest) -> Response:
    """A readable file, redacted: Markdown, an image, JSON or text; with `?raw` as a download. Never as a page of its
    own, because a stranger may have written it."""
    query = asked.query
    path = query.get("path", "")
    data = asked.handle.files.read(path, limit=_LIMIT)
    if "raw" in query:
        name = quote(path.rpartition("/")[2])
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(data, media_type="application/octet-stream", headers=headers)
    text = _text_of(data)
    kind = _kind(path, data, text)
    shown: dict[str, Any] = {"kind": kind, "text": text or "", "is_cut": text is not None and len(text) >= _SHOWN}
    of = {"in": "file", "file": path}
    status = asked.handle.status(brief=True)
    shown |= {"path": path, "bytes": len(data), "of": of, "status": status, **_versions(asked.handle, status, path)}
    if kind == "markdown" and text is not None:
        shown["html"] = _reader(asked, near=path).markdown(text)
    elif kind == "json":
        shown["json"] = reading.folded(_json(data))
    shown |= _compared(asked, query.get("with", ""), query.get("run", "").strip(), path, text)
    return asked.page("file.html", **shown)


def _kind(path: str, data: bytes, text: str | None) -> str:
    if image_type(data):
        return "image"
    if text is None:
        return "other"
    ending = path.rpartition(".")[2].lower()
    if ending in ("md", "markdown") and len(text) <= LONGEST:
        return "markdown"
    return "json" if ending == "json" and _json(data) is not None else "text"


def _text_of(data: bytes) -> str | None:
    return None if b"\0" in data[:8192] else data[: _SHOWN * 4].decode(errors="replace")[:_SHOWN]


def _json(data: bytes) -> Any:
    """The value of a file that has an object or a list; None if it has none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _versions(handle: Handle, status: RunStatus, path: str) -> dict[str, Any]:
    """The other versions of a file: those that were not taken, and the texts of other attempts."""
    folder, stem = path.rpartition("/")[0], _stem(path)
    others = [
        entry.path
        for entry in handle.store.list(folder)
        if entry.path != path and is_readable(entry.path) and _stem(entry.path) == stem
    ]
    held = status.moment.root.files.get(path.removeprefix("files/")) if status.moment else None
    return {"others": sorted(others)[:FILES], "written": held.version if held and path.startswith("files/") else 0}


def _stem(path: str) -> str:
    """What all versions of a file have in common."""
    is_recovered = "recovered/" in path
    return re.sub(r"-[0-9]+\.md$" if is_recovered else r"\.rejected(-[0-9]+)?(?=\.|$)", "", path)


def _compared(asked: RunRequest, other: str, run: str, path: str, text: str | None) -> dict[str, Any]:
    """The lines that differ from another file of the run, or from the same file of another run."""
    if not other and not run:
        return {"lines": None, "other": "", "other_run": ""}
    from_run = asked.site.handle(asked.site.find(run)) if run else asked.handle
    was = _text_of(from_run.files.read(other or path, limit=_LIMIT))
    if text is None or was is None:
        raise UsageError("only texts are compared", remedy="download both files")
    if max(was.count("\n"), text.count("\n")) > _COMPARED or max(len(was), len(text)) >= _SHOWN:
        raise UsageError("the texts are too long to compare here", remedy="download both files")
    return {"lines": [*text_changes(was, text)], "other": other or path, "other_run": run}


# Markdown


class Reader:
    """The texts of one page. `links` and `images` find the files of the run that they name, to open and to show.
    `left`: how many more characters the page shows as Markdown; later texts are shown as they are."""

    def __init__(self, links: Find, images: Find, *, heading: int = 3, left: int = 10 * LONGEST):
        self._links, self._images, self._heading, self._left = links, images, heading, left

    def markdown(self, text: str) -> Markup:
        """A text as HTML. A long one as it is."""
        if len(text) > min(LONGEST, self._left):
            return Markup('<pre class="said">{}</pre>').format(visible(text))
        self._left -= len(text)
        parser = _parser()
        tokens = parser.parse(visible(text))
        self._change(tokens)
        return Markup('<div class="said">{}</div>').format(Markup(parser.renderer.render(tokens, parser.options, {})))

    def _change(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            match token.type:
                case "heading_open" | "heading_close":  # the page has its own headings above
                    token.tag = f"h{self._heading}"
                case "th_open" | "td_open":  # a style of its own, which the policy of the page forbids
                    side = str(token.attrs.pop("style", "")).rpartition(":")[2]
                    token.attrs |= {"class": side} if side in ("right", "center") else {}
                case "link_open":
                    self._link(token)
                case "image":
                    self._image(token)
            if token.children and token.type != "image":
                self._change(token.children)

    def _link(self, token: Token) -> None:
        url = str(token.attrGet("href") or "")
        if urlsplit(url).scheme in _SCHEMES:
            token.attrs = {"href": url, "rel": _REL}
        elif found := self._links(url):
            token.attrs = {"href": found}
        else:  # it leads nowhere that this page knows
            token.attrs = {}

    def _image(self, token: Token) -> None:
        """One of another place is not loaded: that would tell its server who reads the page, and when."""
        url, alt = str(token.attrGet("src") or ""), token.content
        if found := self._images(url):
            shown = Markup('<img src="{}" alt="{}" loading="lazy">').format(found, alt or url)
        elif urlsplit(url).scheme in ("http", "https"):
            shown = Markup('<a href="{}" rel="{}">image: {}</a>').format(url, _REL, alt or url)
        else:
            shown = escape(f"[image: {alt}]")
        token.type, token.content, token.children = "html_inline", str(shown), None


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    made.validateLink = _may_lead  # type: ignore[method-assign]
    return made


def _may_lead(url: str) -> bool:
    """Whether a link stays one. One of another scheme stays text, as the person has written it."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return parts.scheme in _SCHEMES if parts.scheme else not parts.netloc


def _reader(asked: RunRequest, *, near: str = "", heading: int = 3) -> Reader:
    """A reader of texts of a run. Paths in them are those in the workspace, or next to the file `near`."""
    name, folder = asked.name, f"{near.rpartition('/')[0]}/" if near else ""
    known = dict[str, bool]()

    def is_there(path: str) -> bool:
        if path not in known:
            known[path] = len(known) < _NAMED and is_readable(path) and asked.handle.store.version(path) is not None
        return known[path]

    def find(url: str, page: str) -> str:
        parts = urlsplit(url)
        path = unquote(parts.path)
        if parts.scheme or parts.netloc or not path or path.startswith("/") or ".." in path.split("/"):
            return ""
        path = path.removeprefix("./")
        for each in dict.fromkeys((f"{folder}{path}", path)):
            if is_there(each):
                return f"{run_url(name, page)}?{query_of({'path': each})}"
        return ""

    def find_image(url: str) -> str:
        ending = urlsplit(url).path.rpartition(".")[2].lower()
        return find(url, "image") if ending in ("png", "jpg", "jpeg", "gif", "webp") else ""

    return Reader(lambda url: find(url, "file"), find_image, heading=heading)
