"""What a call is known by when the code of its step has changed between two starts."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from satchel import Run, agent, effect, run, step
from satchel.runtime.engine import open_scope

Main = Callable[..., Any]


@pytest.fixture
def enter(workspace: Path, crash: type[BaseException]) -> Callable[..., Any]:
    """Calls a function in a scope of an agent; the first time the process dies at its end."""

    def enter(function: Callable[[], Any], *, dies: bool = False) -> Any:
        async def work() -> Any:
            found = await function()
            if dies:
                raise crash
            return found

        @agent
        async def main(run: Run[Any]) -> Any:
            return await run.scope("work", work)

        if dies:
            with pytest.raises(crash):
                run(workspace, main)
            return None
        return run(workspace, main)

    return enter


def made(kind: Any, function: Callable[..., Any]) -> Any:
    return kind(name="ask")(function)


def with_defaults(**defaults: Any) -> Any:
    """A step called f with these parameters."""

    def f(**more: Any) -> None: ...

    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    f.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return step(f)


@pytest.mark.parametrize("kind", [step, effect])
def test_a_new_parameter_with_a_default_makes_what_is_finished_unknown(
    enter: Callable[..., Any], calls: list[str], kind: Any
) -> None:
    def before(text: str) -> str:
        calls.append(text)
        return text.upper()

    def now(text: str, model: str = "small", *more: str, tone: str | None = None, **options: Any) -> str:
        calls.append(f"{text} {model}")
        return f"{text} {model}"

    enter(lambda: made(kind, before)("a"), dies=True)
    outcome = enter(lambda: made(kind, now)("a"))
    assert (outcome.status, outcome.result, calls) == ("completed", "A", ["a"])


def test_another_value_than_the_default_is_answered_from_the_record(
    enter: Callable[..., Any], calls: list[str]
) -> None:
    def before(text: str) -> str:
        return text.upper()

    def now(text: str, model: str = "small") -> str:
        return f"{text} {model}"

    enter(lambda: made(step, before)("a"), dies=True)
    assert enter(lambda: made(step, now)("a", model="large")).result == "a large"


def test_a_changed_default_is_answered_from_a_stale_result(enter: Callable[..., Any]) -> None:
    def before(text: str, model: str = "small") -> str:
        return f"{text} {model}"

    def now(text: str, model: str = "large", tone: str = "kind") -> str:
        return f"{text} {model} {tone}"

    enter(lambda: made(step, before)("a"), dies=True)
    assert enter(lambda: made(step, now)("a")).result == "a large kind"


def test_equal_calls_change_places_once_the_step_has_a_new_parameter(
    enter: Callable[..., Any], workspace: Path, crash: type[BaseException]
) -> None:
    numbers = count()

    def before(text: str) -> int:
        return next(numbers)

    def now(text: str, model: str = "small") -> int:
        return next(numbers)

    async def two() -> list[int]:
        return [await made(step, before)("a"), await made(step, before)("a")]

    async def three() -> list[int]:
        return [await made(step, now)("a") for _ in range(3)]

    enter(two, dies=True)
    enter(three, dies=True)
    assert enter(three).result == [0, 1, 2]


def test_a_call_within_a_call_is_not_known_after_the_outer_one_got_a_parameter(
    enter: Callable[..., Any], calls: list[str], crash: type[BaseException]
) -> None:
    @step
    def inner(text: str) -> str:
        calls.append(text)
        return text

    async def before(text: str) -> str:
        await inner(text)
        raise crash

    async def now(text: str, model: str = "small") -> str:
        return await inner(text)

    with pytest.raises(crash):
        enter(lambda: made(step, before)("a"))
    assert enter(lambda: made(step, now)("a")).result == "a" and calls == ["a"]


def test_an_effect_in_doubt_gets_another_key_with_a_new_parameter(
    enter: Callable[..., Any], calls: list[str], crash: type[BaseException]
) -> None:
    async def before(text: str, *, key: str) -> str:
        calls.append(key)
        raise crash

    async def now(text: str, urgent: bool = False, *, key: str) -> str:
        calls.append(key)
        return text

    with pytest.raises(crash):
        enter(lambda: effect(name="send", idempotent=True)(before)("a"))
    assert enter(lambda: effect(name="send", idempotent=True)(now)("a")).status == "completed"
    assert len(calls) == 2 and calls[0] == calls[1]


def test_parameters_that_were_there_before_are_left_out_first() -> None:
    defaults = dict.fromkeys("abcdef")
    found = list(open_scope.earlier(with_defaults(**defaults), {"x": 1, **defaults}, None, [None]))
    assert len(found) == len(set(found)) == 16

    def digest(*names: str) -> tuple[str, str]:
        arguments = {"x": 1} | dict.fromkeys([*names, "z"])
        return next(open_scope.earlier(with_defaults(z=None), arguments, None, [None]))

    assert found[:6] == [digest(*"abcdef"[:n]) for n in range(5, -1, -1)]


def test_a_default_that_is_no_json_stops_a_call_that_says_another(enter: Callable[..., Any]) -> None:
    nothing = object()

    def before(text: str) -> str:
        return text

    def now(text: str, model: Any = nothing) -> str:
        return model or text

    enter(lambda: made(step, before)("a"), dies=True)
    assert enter(lambda: made(step, now)("a", model="large")).result == "large"


def test_thirty_parameters_with_defaults_are_tried_in_all_ways() -> None:
    defaults = {f"p{number}": number for number in range(30)}
    assert len(list(open_scope.earlier(with_defaults(**defaults), defaults, None, [None]))) == 16


def test_an_effect_that_began_before_it_had_a_parameter_is_not_verified(
    enter: Callable[..., Any], calls: list[str], crash: type[BaseException]
) -> None:
    async def before(text: str) -> str:
        raise crash

    async def now(text: str, urgent: bool = False) -> str:
        return text

    def verify(text: str, urgent: bool) -> str:
        calls.append(f"{text} {urgent}")
        return text

    with pytest.raises(crash):
        enter(lambda: effect(name="send", verify=verify)(before)("at 1 o'clock"))
    outcome = enter(lambda: effect(name="send", verify=verify)(now)("at 2 o'clock"))
    assert outcome.status == "waiting" and calls == ["at 1 o'clock False"], "one that has happened, or a new one?"


@pytest.mark.parametrize("kind", [step, effect])
def test_calls_in_another_order_or_of_another_module_run_again(
    enter: Callable[..., Any], calls: list[str], kind: Any
) -> None:
    """Two rows of the table in docs/deploying-changes.md."""

    def ask(what: str) -> str:
        calls.append(what)
        return what.upper()

    def both(*order: str) -> Callable[[], Any]:
        asked = made(kind, ask)

        async def function() -> list[str]:
            return [await asked(what) for what in order]

        return function

    enter(both("a", "b"), dies=True)
    ask.__module__ = "another"
    outcome = enter(both("b", "a"))
    assert outcome.result == ["B", "A"] and calls == ["a", "b"], outcome
