"""Which record set a value of state.json, an item of todo.md, or a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from ...schemas import nearest
from ...workspace.base import UsageError, arguments
from ...workspace.history import Item, Node, Origin, Story, data_origins, message_origins, plain, plan_origins, story
from ...workspace.state import folder_of_agent, json_patch
from ...workspace.views import conversation
from .place import Place

_FILE = re.compile(
    r"(?P<agents>(?:agents/[^/]+/)*)(?P<file>state\.json|todo\.md|messages\.jsonl)(?:/(?P<rest>.*))?", re.DOTALL
)
_NAMED = 5

T = TypeVar("T")


class Blamed(Struct, frozen=True):
    """A value and the record that set it (`origin`).

    `path` is a JSON pointer into `data` of a state.json ("/summaries/a.txt"; "" if the data is empty). In a todo.md it
    is "/^3" for the text of an item, or "/line 7" if it has no id, and "/^3/mark" for its mark if another record set
    that. In a messages.jsonl it is "/57", the `seq` of the message, and `value` has `role` and `content`.
    `brought_back_by`: the record of the return to an earlier record that has brought the value back, or 0.
    """

    path: str
    value: Any
    origin: Origin
    brought_back_by: int = 0


class Blame(Struct, frozen=True):
    """The values at and below a path of `file`, in its order. `problem` says why records after `newest` can't be
    read."""

    file: str
    values: list[Blamed]
    newest: int
    problem: str = ""


def blame(place: Place, path: str) -> Blame:
    """All values at and below `path`."""
    path = arguments.text("path", path)
    found = _FILE.fullmatch(path)
    if found is None:
        raise UsageError(
            f"{path!r} names no file whose values are blamed",
            remedy="name state.json, todo.md or messages.jsonl, or those of a sub-agent, and then what is in it: "
            "state.json/KEY, agents/NAME/todo.md/^3, messages.jsonl/SEQ",
        )
    told = story(place.store)
    agent = "/".join(found["agents"].split("/")[1::2])
    file, rest = folder_of_agent(agent) + found["file"], found["rest"] or ""
    if found["file"] == conversation.NAME:
        values = [*_of_messages(place, told, agent, file, rest)]
    else:
        of_file = _of_plan if found["file"] == "todo.md" else _of_data
        values = [*of_file(told, agent, file, rest)]
    newest = told.lines[-1].seq if told.lines else told.start.seq
    return Blame(file, values, newest, str(told.problem or ""))


def _of_data(told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    trees = data_origins(told.start, told.lines)
    tree = _of_agent(trees, agent, file, told)
    if tree is None:
        return
    parts = json_patch.split(f"/{rest}") if rest else []
    if parts[:1] == ["data"] and tree.below("data") is None:
        del parts[0]  # as it is in the file
    at = "".join(f"/{json_patch.escape(part)}" for part in parts)
    for leaf, node in _below(tree, parts, file).leaves(at):
        yield Blamed(leaf, node.value, node.cell.origin, node.cell.back)


def _below(tree: Node, parts: list[str], file: str) -> Node:
    at = file
    for part in parts:
        inner = tree.below(part)
        if inner is None:
            parts_of = () if tree.is_leaf else tree.value if type(tree.value) is dict else range(len(tree.value))
            names = [json_patch.escape(str(each)) for each in parts_of]
            raise _missing(f"{at}/{json_patch.escape(part)}", at, part, names)
        at, tree = f"{at}/{json_patch.escape(part)}", inner
    return tree


def _of_plan(told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    items = _of_agent(plan_origins(told.start, told.lines), agent, file, told) or []
    values = [each for item in items for each in _of_item(item)]
    wanted = rest.lower() if rest.lower().startswith(("^", "line ")) else f"^{rest.lower()}"
    chosen = [each for each in values if not rest or f"{each.path}/".lower().startswith(f"/{wanted}/")]
    if not chosen:  # the record of its text has set the mark, too
        marks = [Blamed(f"{_path(each)}/mark", each.mark, each.marked) for each in items]
        chosen = [each for each in marks if each.path.lower() == f"/{wanted}"]
    if rest and not chosen:
        raise _missing(f"{file}/{rest}", file, rest, (f"^{item.id}" for item in items if item.id))
    yield from chosen


def _of_messages(place: Place, told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    now = told.begin()
    now.apply(told.lines)
    said = _of_agent(message_origins(place.store, told.start, now, told.lines), agent, file, told) or []
    chosen = [each for each in said if rest in ("", str(each.row.seq))]
    if rest and not chosen:
        raise _missing(f"{file}/{rest}", file, rest, (str(each.row.seq) for each in reversed(said)))
    yield from (Blamed(f"/{each.row.seq}", plain(each.row), each.origin) for each in chosen)


def _of_item(item: Item) -> Iterator[Blamed]:
    path = _path(item)
    yield Blamed(path, item.text, item.wrote)
    if item.marked != item.wrote:
        yield Blamed(f"{path}/mark", item.mark, item.marked)


def _path(item: Item) -> str:
    return f"/^{item.id}" if item.id else f"/line {item.line + 1}"


def _of_agent(known: dict[str, T], agent: str, file: str, told: Story) -> T | None:
    """None if it has nothing yet."""
    if agent in known or not agent:
        return known.get(agent)
    raise _missing(file, "", file, (folder_of_agent(each) + file.rpartition("/")[2] for each in known))


def _missing(path: str, at: str, part: str, known: Iterable[str]) -> UsageError:
    names = [*known]
    close = nearest(part, names)
    above = f"{at}/" if at else ""
    if close is not None:
        remedy = f"did you mean {above + close!r}?"
    elif names:
        more = ", ..." if len(names) > _NAMED else ""
        remedy = f"there are {', '.join(names[:_NAMED])}{more}"
    else:
        remedy = f"{at!r} has no parts"
    return UsageError(f"there is no {path!r}", remedy=remedy)
