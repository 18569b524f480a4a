"""The identity of a call within its scope: its name, its arguments, and the number of equal calls before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import chain, combinations, islice, product
from types import CodeType
from typing import Any

import msgspec
from msgspec import Raw

from ...workspace.base import AgentError, NotSerializable
from ...workspace.journal.records import Key
from ...workspace.state import Scope
from ..agent import place
from ..steps import Step, canonical

_TRIES = 16


def digest_of(identity: bytes, outer: Key | None) -> str:
    """The digest of the arguments as JSON, or of the name of a named call. `outer` is the call that contains it."""
    within = b"" if outer is None else repr(outer).encode()
    return blake2b(identity + within, digest_size=8).hexdigest()


def earlier(
    step: Step, arguments: Mapping[str, Any], named: str | None, outers: Iterable[Key | None]
) -> Iterator[tuple[str, str]]:
    """The names and digests under which this call may have been recorded by earlier code: before its function, or one
    that calls it, got new parameters (those with their default value), or under the names of `formerly=`. `outers` are
    the identities of the call that contains it, the current one first."""
    defaults, tried = step.shape.defaults, [*islice(outers, 1 + _TRIES)]
    current = {new: old for old, new in step.renamed.items()}
    variants = [(step.name, dict[str, str]()), *([(step.name, current)] if current and named is None else [])]
    variants += [(name, current) for name in step.former_names]
    has_default = [parameter for parameter in defaults if _is_equal(arguments[parameter], defaults[parameter])]
    for name, renamed in variants:
        ways = product([()] if named is not None else islice(chain([()], _subsets(has_default)), 1 + _TRIES), tried)
        is_current = (name, renamed) == (step.name, {})
        for left_out, outer in islice(ways, int(is_current), 1 + _TRIES):
            if named is not None:
                yield name, digest_of(named.encode(), outer)
                continue
            rest = {renamed.get(key, key): value for key, value in arguments.items() if key not in left_out}
            yield name, digest_of(canonical(rest, name), outer)


class Names:
    """The functions that have been called by each name in one attempt at a scope."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], object] = {}

    def check(self, name: str, code: object, outer: str, root: str) -> None:
        """AgentError if another function was called by that name in the step `outer`, because the two would exchange
        results. `code` is what the functions have in common, `root` the workspace."""
        known = self._codes.setdefault((name, outer), code)
        if known is code or known == code:
            return
        codes = [each for each in (known, code) if isinstance(each, CodeType)]
        places = (f"{place(each.co_filename, root)}:{each.co_firstlineno}" for each in codes)
        raise AgentError(
            f"two steps are called {name!r} here",
            path=", ".join(sorted(places)) or None,
            why="after a restart a call of one could get a result of the other",
            remedy='give one of them another name, as in @step(name="...")',
        )


def changed(arguments: Mapping[str, Any], encoded: bytes) -> str:
    """The name of an argument that differs from what was encoded; empty if none does."""
    was = msgspec.json.decode(encoded, type=dict[str, Raw])
    return next((name for name, value in arguments.items() if canonical(value, name) != bytes(was[name])), "")


def _is_equal(value: Any, default: Any) -> bool:
    try:
        return value is default or canonical(value, "") == canonical(default, "")
    except NotSerializable:
        return False  # a default that stands for "not given" need not be JSON


def _subsets(parameters: list[str]) -> Iterator[tuple[str, ...]]:
    """Not empty, the most likely first: those at the end, of which there may be several; then any, the smallest
    first."""
    ends = [tuple(parameters[at:]) for at in range(len(parameters) - 1, -1, -1)]
    sizes = range(1, len(parameters) + 1)
    others = chain.from_iterable(combinations(parameters, size) for size in sizes)
    return chain(ends, (subset for subset in others if subset not in ends))


class Unclaimed:
    """The recorded calls that this attempt of the scope has not made again."""

    def __init__(self, recorded: Iterable[Key]):
        self._by_name: dict[str, set[Key]] = {}
        for key in recorded:
            self._by_name.setdefault(key[0], set()).add(key)

    def has(self, name: str) -> bool:
        """Whether one has this name."""
        return bool(self._by_name.get(name))

    def __contains__(self, key: Key) -> bool:
        return key in self._by_name.get(key[0], ())

    def claim(self, key: Key) -> None:
        if keys := self._by_name.get(key[0]):
            keys.discard(key)


class Numbering:
    """Under which keys and numbers the calls of one attempt at a scope are recorded. A call that an earlier attempt has
    recorded keeps its number."""

    def __init__(self, recorded: Scope):
        self._recorded = recorded
        self._unclaimed = Unclaimed(recorded.numbers)
        self._last = recorded.last_number
        self._made = 0
        self._cancelled: dict[Key, int] = {}  # by the agent itself: how many calls were made until then

    def is_recorded(self, key: Key) -> bool:
        return key in self._recorded.numbers

    def has_unclaimed(self, name: str) -> bool:
        """Whether there is a call of this name that an earlier attempt has recorded, and this one has not made."""
        return self._unclaimed.has(name)

    def is_unclaimed(self, key: Key) -> bool:
        """Whether an earlier attempt has recorded this call and this attempt has not made it."""
        return key in self._unclaimed

    def claim(self, key: Key) -> None:
        """This attempt makes the call."""
        self._unclaimed.claim(key)
        self._made += 1

    def number(self, key: Key) -> int:
        """The number of a call that is not answered from the record."""
        number = self._recorded.numbers.get(key)
        if number is None:
            self._last += 1
            number = self._last
        return number

    def cancel(self, key: Key) -> None:
        """The agent itself has cancelled the call."""
        self._cancelled[key] = self._made

    def cancelled_last(self) -> list[Key]:
        """The calls that the agent has cancelled without making another one since."""
        return [key for key, made in self._cancelled.items() if made == self._made]
