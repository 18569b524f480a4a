"""The form of a moment in a file: structs as JSON, and the results of large scopes apart from the rest.

Structs are converted into ones that JSON can hold, and back, according to their types: a new field needs no line here.
msgspec handles almost every type itself. It can't write a dict whose keys are calls. That becomes a list: of the
records if each knows its call, else of pairs. A set is written in order, and a plan with its parsed form. A struct that
contains any of these is written as a struct made here, with the same names and defaults.

A checkpoint in a bucket keeps the results of a large open scope separately, and they are fetched when needed. They come
first in the file. The rest, which an opening needs, comes after them, with a hash of its own, and is fetched alone.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from ..base import Damaged, InvalidFile, SatchelError
from ..formats import decoder
from ..journal import Key, OfCall, StepCompleted
from ..plan import Plan, TaskRow
from ..store import LARGE_LIMIT, Store
from .scope_state import NOT_KEPT, Scope

MANY = 100
"""A scope with more results keeps them separately."""

AT_HAND = 8
"""So many of the newest stay with the scope: the readable files show some of them."""

_DONE, _NUMBERS = Scope.__dict__["done"], Scope.__dict__["numbers"]


class Shape(NamedTuple):
    """How a type is written."""

    kind: Any  # what msgspec reads in its place
    pack: Callable[[Any], Any] | None = None  # None: msgspec takes the value as it is
    unpack: Callable[[Any], Any] | None = None


class _PlanText(Struct, omit_defaults=True):
    text: str
    outline: list[TaskRow]
    own_work: list[str] = []


_PLAN = Shape(
    _PlanText,
    lambda plan: _PlanText(plan.text, plan.outline(), sorted(plan.own_work)),
    lambda file: Plan.restore(file.text, file.outline, file.own_work),
)


def shape_of(kind: Any) -> Shape:
    """The shape of any type that a field has."""
    if kind is Plan:
        return _PLAN
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(kind)
    if origin is set:
        return Shape(kind, lambda found: sorted(found) if found else found)  # by which msgspec tells that it is empty
    if origin is dict and args[0] == Key:
        return _by_call(args[1])
    if origin is dict:
        inner = shape_of(args[1])
        return Shape(dict[args[0], inner.kind], _each(inner.pack), _each(inner.unpack))  # type: ignore[valid-type, name-defined]
    return Shape(kind)


def _each(change: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return change and (lambda found: {key: change(value) for key, value in found.items()})


def _by_call(value: Any) -> Shape:
    if isinstance(value, type) and issubclass(value, OfCall):
        return Shape(list[value], lambda found: list(found.values()), _of_records)
    return Shape(list[tuple[Key, value]], lambda found: list(found.items()), dict)


def _of_records(records: list[OfCall]) -> dict[Key, OfCall]:
    """There may be tens of thousands, and an opening waits."""
    return {(record.step, record.args, record.n): record for record in records}


def _struct(kind: type[Struct]) -> Shape:
    found = [(each, shape_of(each.type)) for each in fields(kind) if not _is_unkept(each)]
    if len(found) == len(kind.__struct_fields__) and not any(shape.pack or shape.unpack for _, shape in found):
        return Shape(kind)
    config = kind.__struct_config__
    made = msgspec.defstruct(
        f"_{kind.__name__}",
        [_field(each, shape) for each, shape in found],
        kw_only=True,
        omit_defaults=config.omit_defaults,
    )
    packs = {each.name: shape.pack for each, shape in found}
    unpacks = {each.name: shape.unpack for each, shape in found}
    return Shape(made, _remade(made, packs), _remade(kind, unpacks))


def _remade(into: type[Struct], changes: Mapping[str, Callable[[Any], Any] | None]) -> Callable[[Any], Any]:
    """Makes an `into` of the fields of another struct, each converted."""
    names = [*changes]
    needed = [(name, change) for name, change in changes.items() if change is not None]

    def remake(value: Any) -> Any:
        facts = {name: getattr(value, name) for name in names}
        for name, change in needed:
            facts[name] = change(facts[name])
        return into(**facts)

    return remake


def _is_unkept(each: FieldInfo) -> bool:
    return get_origin(each.type) is Annotated and NOT_KEPT in each.type.__metadata__


def _field(each: FieldInfo, shape: Shape) -> tuple[str, Any] | tuple[str, Any, Any]:
    if each.default is not msgspec.NODEFAULT:
        return each.name, shape.kind, msgspec.field(default=_changed(each.default, shape.pack))
    if each.default_factory is msgspec.NODEFAULT:
        return each.name, shape.kind
    factory: Any = each.default_factory
    if factory is dict and get_origin(shape.kind) is list:
        factory = list
    elif factory not in (dict, list, set) and shape.pack is not None:
        factory = lambda: _changed(each.default_factory(), shape.pack)  # noqa: E731
    return each.name, shape.kind, msgspec.field(default_factory=factory)


def _changed(value: Any, change: Callable[[Any], Any] | None) -> Any:
    return value if change is None else change(value)


class Results(Struct):
    """The results of one scope, oldest first."""

    agent: str
    scope: str
    done: list[StepCompleted]


class Front(Struct, omit_defaults=True):
    """The beginning of the file. Decoding skips the rest."""

    format: int
    results: list[Results] = []


class Head(Struct):
    """The part after the results."""

    scopes: list[tuple[str, str, int]]  # that have results apart: the agent, the scope, how many results
    at: int  # where it begins in the file
    sha256: str  # of it


_front, _head = decoder(Front), decoder(Head)


class Fetched:
    """The results of one checkpoint. All are fetched when those of one scope are needed."""

    def __init__(self, store: Store, path: str, check: Callable[[bytes], None]):
        """`check` raises ValueError for bytes that are not the whole file."""
        self._store, self._path, self._check = store, path, check
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], list[StepCompleted]] | None = None

    def of(self, agent: str, scope: str) -> list[StepCompleted]:
        """Damaged if they are not as they were written, SatchelError if the file was removed since."""
        with self._lock:
            if self._found is None:
                self._found = {(each.agent, each.scope): each.done for each in self._fetch()}
        try:
            return self._found[agent, scope]
        except KeyError:
            raise self._damaged(f"it has none of the scope {scope!r}") from None

    def _fetch(self) -> list[Results]:
        try:
            data = self._store.read(self._path, limit=LARGE_LIMIT).data
            self._check(data)
            found: Front = _front.decode(data)
        except FileNotFoundError:
            raise SatchelError(
                "the checkpoint with these results is gone",
                path=self._path,
                why="another process continues the run, or a person has removed the file",
                remedy="look again: a newer checkpoint or the journal has them",
            ) from None
        except (InvalidFile, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise self._damaged(str(error)) from error
        return found.results

    def _damaged(self, why: str) -> Damaged:
        return Damaged(
            "the results in a checkpoint can't be read",
            path=self._path,
            why=why,
            remedy="move the file out of the folder: the checkpoint before it and the journal have the same results",
        )


class Later(Struct, frozen=True):
    """Results of a scope that are not fetched yet."""

    count: int
    fetch: Callable[[], Iterable[StepCompleted]]


class ApartScope(Scope):
    """A scope whose results, and the numbers of its calls, are fetched when they are first needed."""

    later: Later | None = None

    @property
    def finished(self) -> int:
        return len(_DONE.__get__(self)) + (self.later.count if self.later else 0)

    @property  # type: ignore[misc]
    def done(self) -> dict[Key, StepCompleted]:
        self._have()
        found: dict[Key, StepCompleted] = _DONE.__get__(self)
        return found

    @done.setter
    def done(self, done: dict[Key, StepCompleted]) -> None:
        self._have()
        _DONE.__set__(self, done)

    @property  # type: ignore[misc]
    def numbers(self) -> dict[Key, int]:
        self._have()
        found: dict[Key, int] = _NUMBERS.__get__(self)
        return found

    @numbers.setter
    def numbers(self, numbers: dict[Key, int]) -> None:
        self._have()
        _NUMBERS.__set__(self, numbers)

    def newest(self, most: int) -> Iterator[StepCompleted]:
        at_hand: dict[Key, StepCompleted] = _DONE.__get__(self)
        return islice(reversed(at_hand.values()), most) if most <= len(at_hand) else super().newest(most)

    def _have(self) -> None:
        if self.later is None:
            return
        older = {record.key: record for record in self.later.fetch()}
        _DONE.__set__(self, older | _DONE.__get__(self))
        self.later = None
        fill(self)


def fill(scope: Scope) -> None:
    """The numbers of the calls from their records."""
    for records in (scope.done, scope.started):
        scope.numbers |= {key: record.no for key, record in records.items()}
    scope.numbers |= {key: promoted[0].no for key, promoted in scope.promoted.items() if promoted}


def put_off(scope: Scope, count: int, fetch: Callable[[], Iterable[StepCompleted]]) -> ApartScope:
    """A scope with the content of this one; `fetch` returns `count` more results when they are needed."""
    fields = {name: getattr(scope, name) for name in scope.__struct_fields__}
    return ApartScope(**fields, later=Later(count, fetch))


def taken_apart(agent: str, key: str, scope: Scope) -> tuple[Scope, Results | None]:
    """The scope without its separate results, and these results."""
    if len(scope.done) <= MANY:
        return scope, None
    done = list(scope.done.items())
    at_hand = dict(done[-AT_HAND:])
    return msgspec.structs.replace(scope, done=at_hand), Results(agent, key, [each for _, each in done[:-AT_HAND]])


def encoded(front: Front, rest: bytes) -> bytes:
    """`front`, then `rest` (keys and values without braces), without the end of the object."""
    begin = msgspec.json.encode(front)[:-1] + b","
    if not front.results:
        return begin + rest
    scopes = [(each.agent, each.scope, len(each.done)) for each in front.results]
    head = Head(scopes, len(begin), hashlib.sha256(rest).hexdigest())
    return b'%s%s,"head":%s' % (begin, rest, msgspec.json.encode(head))


def behind_results(end: bytes, size: int, tail: int) -> tuple[bytes, Head] | None:
    """From the `end` of a file of `size` bytes, of which the last `tail` bytes hold its hash: the part after the
    results, without braces. None if there are no separate results, or `end` does not contain all of that part.
    ValueError if it is damaged."""
    at = end.rfind(b',"head":')
    if at < 0:
        return None
    try:
        head = _head.decode(end[at + len(b',"head":') : len(end) - tail])
    except msgspec.MsgspecError:
        return None
    begins = head.at - (size - len(end))
    if begins < 0:
        return None
    rest = end[begins:at]
    if hashlib.sha256(rest).hexdigest() != head.sha256:
        raise ValueError("its hash does not match")
    return rest, head
