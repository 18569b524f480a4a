"""Steps: answered from the record, known by scope, name, arguments and occurrence, returned as annotated."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from waits import PATIENCE

from satchel import Key, NotDone, Retry, Run, agent, effect, run, step
from satchel.workspace.base.errors import AgentError, NotSerializable, UsageError
from satchel.workspace.store import DiskStore, Syscalls


def test_a_finished_step_is_not_repeated_after_a_crash(workspace: Path, calls: list[str], crash: Any) -> None:
    @step
    async def read(path: str) -> str:
        calls.append(path)
        return path.upper()

    @agent
    async def main(run: Run[Any]) -> list[str]:
        found = [await read("a"), await read("b")]
        if run.attempt == 1:
            raise crash
        return [*found, await read("c")]

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.result == ["A", "B", "C"]
    assert calls == ["a", "b", "c"]
    assert outcome.answered == 2


def test_changed_arguments_run_again_exactly_what_depends_on_them(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @step
    async def double(number: int) -> int:
        calls.append(f"double {number}")
        return 2 * number

    @agent
    async def main(run: Run[Any]) -> int:
        total = await double(1) + await double(run.attempt + 10)
        if run.attempt == 1:
            raise crash
        return total

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == 2 + 24
    assert calls == ["double 1", "double 11", "double 12"]


def test_equal_calls_are_told_apart_by_their_number(workspace: Path, crash: Any) -> None:
    count = iter(range(100))

    @step
    async def draw() -> int:
        return next(count)

    @agent
    async def main(run: Run[Any]) -> list[int]:
        drawn = [await draw() for _ in range(3)]
        if run.attempt == 1:
            raise crash
        return drawn

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == [0, 1, 2]


def test_positional_keyword_and_default_arguments_are_the_same_call(workspace: Path, calls: list[str]) -> None:
    @step
    async def add(a: int, b: int = 2) -> int:
        calls.append("add")
        return a + b

    @agent
    async def main(run: Run[Any]) -> None:
        await add(1)
        if run.attempt == 1:
            raise ValueError
        await add(a=1, b=2)

    assert run(workspace, main).status == "failed"

    @agent
    async def later(run: Run[Any]) -> int:
        return await add(b=2, a=1)

    assert run(workspace, later).result == 3
    assert calls == ["add"]


def test_arguments_by_any_name_are_arguments_like_others(workspace: Path, calls: list[str]) -> None:
    """`**more` is not one argument: its names are shown, a verify gets them, and they may be those of parameters that
    Satchel fills in."""

    def was_sent(to: str, key: str, more: int) -> str:
        calls.append(f"verify {to} {more}")
        raise NotDone

    @effect(verify=was_sent)
    async def send(key: Key, /, to: str, **more: Any) -> str:
        calls.append(f"send {to} {sorted(more)} {len(key)}")
        if len(calls) == 1:
            raise Stop
        return to

    class Stop(BaseException):
        pass

    @agent
    async def main(run: Run[Any]) -> str:
        return await send("ann", more=1, key="k")

    with pytest.raises(Stop):
        run(workspace, main)
    assert run(workspace, main).result == "ann"
    assert calls == ["send ann ['key', 'more'] 32", "verify ann 1", "send ann ['key', 'more'] 32"]
    assert '"call":"(\\"key\\":\\"k\\",\\"more\\":1,\\"to\\":\\"ann\\")"' in "".join(
        path.read_text() for path in (workspace / "journal").iterdir()
    )


def test_an_argument_by_place_and_by_name_is_refused(workspace: Path) -> None:
    @step
    async def one(number: int, /, **more: int) -> int:
        return number

    @agent
    async def main(run: Run[Any]) -> None:
        await one(1, number=2)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, TypeError) and "one(): 'number' is given by place and by name" in str(
        outcome.error
    )


class Point(BaseModel):
    x: int
    at: datetime


@dataclass(frozen=True)
class Pair:
    left: bytes
    right: tuple[int, ...]


class Entry(TypedDict):
    name: str
    points: list[Point]


@pytest.mark.parametrize(
    "kind, value",
    [
        (Point, Point(x=1, at=datetime(2026, 1, 2, tzinfo=UTC))),
        (Pair, Pair(b"\x00\xff", (1, 2))),
        (Entry, {"name": "n", "points": [Point(x=2, at=datetime(2026, 1, 2, tzinfo=UTC))]}),
        (dict[int, str], {1: "one"}),
        (set[str], {"a", "b"}),
        (Point | None, None),
        (int, 1 << 90),
        (list[Any], [None, True, 1.5, "é\u2028", {"k": []}]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_result_has_its_annotated_type_at_the_first_call_and_from_the_record(
    workspace: Path, kind: Any, value: Any
) -> None:
    async def make() -> Any:
        return value

    make.__annotations__["return"] = kind
    made = step(make)
    seen: list[Any] = []

    @agent
    async def main(run: Run[Any]) -> None:
        seen.append(await made())
        if run.attempt == 1:
            raise ValueError

    run(workspace, main)
    assert run(workspace, main).answered == 1
    assert seen == [value, value]
    assert type(seen[0]) is type(seen[1]) is type(value)


def test_an_answered_result_can_be_changed_without_changing_the_record(workspace: Path) -> None:
    @step
    async def make() -> list[int]:
        return [1]

    @agent
    async def main(run: Run[Any]) -> list[int]:
        made = await make()
        made.append(2)
        if run.attempt < 3:
            raise ValueError
        return made

    for _ in range(2):
        assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == [1, 2]


@pytest.mark.parametrize(
    "value, place",
    [
        ({"items": [1, {"when": object()}]}, "result of make.items[1].when"),
        ({"n": float("nan")}, "result of make.n"),
        ([1.0, float("inf")], "result of make[1]"),
        ({"s": "\ud800"}, "result of make.s"),
        ({(1, 2): 3}, "result of make.(1, 2)"),
        (Path("a"), "result of make"),
    ],
)
def test_what_is_not_json_is_refused_at_the_call_with_its_place(workspace: Path, value: Any, place: str) -> None:
    @step
    async def make() -> Any:
        return value

    @agent
    async def main(run: Run[Any]) -> None:
        await make()

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable)
    assert place in str(outcome.error)


def test_null_in_a_result_is_not_mistaken_for_nan(workspace: Path) -> None:
    @step
    async def make() -> Any:
        return {"a": None, "b": "null", "c": [None]}

    @agent
    async def main(run: Run[Any]) -> Any:
        return await make()

    assert run(workspace, main).result == {"a": None, "b": "null", "c": [None]}


def test_a_sync_step_runs_in_a_thread_and_the_loop_goes_on(workspace: Path) -> None:
    ticked = threading.Event()

    @step
    def wait() -> bool:
        return ticked.wait(PATIENCE) and threading.current_thread() is not threading.main_thread()

    @agent
    async def main(run: Run[Any]) -> bool:
        asyncio.get_running_loop().call_soon(ticked.set)
        return await wait()

    assert run(workspace, main).result is True


class _Counting(Syscalls):
    syncs = 0

    def sync_data(self, fd: int) -> None:
        self.syncs += 1
        super().sync_data(fd)


def test_a_hundred_concurrent_steps_share_a_commit_group(workspace: Path) -> None:
    syscalls = _Counting()

    @step
    async def wait(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @agent
    async def main(run: Run[Any]) -> tuple[int, int]:
        before = syscalls.syncs
        found = await asyncio.gather(*(wait(number) for number in range(100)))
        assert found == list(range(100))
        return before, syscalls.syncs

    before, after = run(DiskStore(workspace, syscalls), main).result
    assert after - before <= 10


def test_concurrent_equal_calls_do_not_mix(workspace: Path, crash: Any) -> None:
    @step
    async def draw(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @agent
    async def main(run: Run[Any]) -> list[int]:
        found = await asyncio.gather(*(draw(number % 2) for number in range(10)))
        if run.attempt == 1:
            raise crash
        return found

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.result == [0, 1] * 5
    assert outcome.answered == 10


def test_a_failing_call_is_retried_and_the_retry_is_on_record(workspace: Path, calls: list[str]) -> None:
    @step(retry=Retry(attempts=3, first=0))
    async def flaky() -> str:
        calls.append("flaky")
        if len(calls) < 3:
            raise ConnectionError("busy")
        return "well"

    @agent
    async def main(run: Run[Any]) -> str:
        return await flaky()

    assert run(workspace, main).result == "well"
    assert len(calls) == 3
    journal = (workspace / "journal/000000000001.jsonl").read_text()
    assert journal.count('"step.failed"') == 2


class _Refused(Exception):
    status_code = 401


@pytest.mark.parametrize("error", [TypeError("mistake"), _Refused("who are you?")])
def test_a_mistake_is_not_retried(workspace: Path, calls: list[str], error: Exception) -> None:
    @step(retry=Retry(attempts=5, first=0))
    async def wrong() -> None:
        calls.append("wrong")
        raise error

    @agent
    async def main(run: Run[Any]) -> None:
        await wrong()

    outcome = run(workspace, main)
    assert outcome.status == "failed"
    assert outcome.error is error
    assert calls == ["wrong"]


def test_progress_is_where_the_next_attempt_starts(workspace: Path, crash: Any) -> None:
    seen: list[Any] = []

    @step
    async def crawl(pages: int, run: Run[Any]) -> int:
        start = run.saved_progress or 0
        seen.append(start)
        for page in range(start, pages):
            await run.progress(page + 1)
            if page == 2 and start == 0:
                raise crash
        return pages

    @agent
    async def main(run: Run[Any]) -> int:
        return await crawl(5)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == 5
    assert seen == [0, 3]


def test_progress_outside_a_step_is_refused(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.progress(1)

    assert isinstance(run(workspace, main).error, AgentError)


def test_a_large_result_is_a_blob_and_comes_back(workspace: Path) -> None:
    @step
    async def big() -> str:
        return "x" * 200_000

    @agent
    async def main(run: Run[Any]) -> int:
        found = await big()
        if run.attempt == 1:
            raise ValueError
        return len(found)

    run(workspace, main)
    assert run(workspace, main).result == 200_000
    assert len(list((workspace / ".satchel/blobs").iterdir())) == 1
    assert sum(path.stat().st_size for path in (workspace / "journal").iterdir()) < 10_000


def test_outside_a_run_a_step_is_a_plain_function() -> None:
    @step
    def double(number: int) -> int:
        return 2 * number

    @step
    async def triple(number: int) -> int:
        return 3 * number

    assert double(2) == 4  # type: ignore[comparison-overlap]
    assert asyncio.run(triple(2)) == 6  # type: ignore[arg-type]


def test_wrong_arguments_are_a_type_error_naming_the_step(workspace: Path) -> None:
    @step
    async def one(number: int) -> int:
        return number

    @agent
    async def main(run: Run[Any]) -> None:
        await one(1, 2)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, TypeError)
    assert "one()" in str(outcome.error)


def test_a_call_after_its_scope_has_ended_is_refused(workspace: Path) -> None:
    late: list[asyncio.Task[Any]] = []
    may_go_on = asyncio.Event()

    @step
    async def one() -> int:
        return 1

    async def leaky(run: Run[Any]) -> None:
        async def later() -> None:
            await may_go_on.wait()
            await one()

        late.append(asyncio.create_task(later()))

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("leaky", leaky, run)
        may_go_on.set()
        with pytest.raises(AgentError, match="after its scope had ended"):
            await late[0]

    assert run(workspace, main).status == "completed"


def test_annotations_that_cannot_be_resolved_are_explained(workspace: Path) -> None:
    async def make() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821, UP037
        return 1

    made = step(make)

    @agent
    async def main(run: Run[Any]) -> None:
        await made()

    outcome = run(workspace, main)
    assert isinstance(outcome.error, UsageError)
    assert "Nowhere" in str(outcome.error)


def test_a_step_inside_a_step_is_not_repeated_by_a_retry_of_the_outer_one(workspace: Path, calls: list[str]) -> None:
    @step
    async def inner(number: int) -> int:
        calls.append(f"inner {number}")
        return number

    @step(retry=Retry(attempts=3, first=0))
    async def outer() -> int:
        found = await inner(1) + await inner(1)
        calls.append("outer")
        if calls.count("outer") < 3:
            raise ConnectionError
        return found

    @agent
    async def main(run: Run[Any]) -> list[int]:
        return [await outer(), await inner(1)]

    assert run(workspace, main).result == [2, 1]
    assert calls == ["inner 1", "inner 1", "outer", "outer", "outer", "inner 1"]


def test_a_step_called_from_another_loop_is_refused_and_does_not_hang(workspace: Path) -> None:
    @step
    async def inner(number: int) -> int:
        return number

    @step
    def outer(number: int) -> int:
        return asyncio.run(inner(number))  # type: ignore[arg-type]

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(*(outer(number) for number in range(5)))

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "another event loop" in str(outcome.error)


def test_progress_is_found_by_a_retry_in_the_same_process(workspace: Path) -> None:
    seen: list[Any] = []

    @step(retry=Retry(attempts=2, first=0))
    async def crawl(run: Run[Any]) -> None:
        seen.append(run.saved_progress)
        await run.progress(5)
        if len(seen) == 1:
            raise ConnectionError

    async def work(run: Run[Any]) -> None:
        await crawl()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    assert run(workspace, main).status == "completed"
    assert seen == [None, 5]


def test_a_failure_that_is_not_worth_a_retry_is_on_record_too(workspace: Path) -> None:
    @step(retry=Retry(attempts=5, first=0))
    async def wrong() -> None:
        raise KeyError("nothing there")

    @agent
    async def main(run: Run[Any]) -> None:
        await wrong()

    assert run(workspace, main).status == "failed"
    assert (workspace / "journal/000000000001.jsonl").read_text().count('"step.failed"') == 1


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int = Field(0, alias="Count")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.count


def test_a_model_with_aliases_and_computed_fields_comes_back(workspace: Path) -> None:
    @step
    async def make() -> Aliased:
        return Aliased(Count=3)

    async def work(run: Run[Aliased]) -> int:
        run.state.count += 1
        return (await make()).count

    @agent(state=Aliased)
    async def main(run: Run[Aliased]) -> tuple[int, int]:
        found = await run.scope("work", work, run)
        if run.attempt == 1:
            raise ValueError
        return found, run.state.count

    run(workspace, main)
    assert run(workspace, main).result == (3, 1)
    schema = json.loads((workspace / ".satchel/schemas/data.json").read_text())
    assert list(schema["properties"]) == ["count"]


@pytest.mark.parametrize("durability", ["strict", "pipelined"])
@pytest.mark.parametrize("where", ["agent", "scope"])
def test_a_retried_step_repeats_its_finished_inner_step(
    workspace: Path, calls: list[str], durability: Any, where: str
) -> None:
    @step
    async def inner(name: str) -> str:
        calls.append(name)
        return name

    @step(retry=Retry(attempts=3, first=0))
    async def outer() -> list[str]:
        found = [await inner("a"), await inner("a"), await inner("b")]
        calls.append("outer")
        if calls.count("outer") < 3:
            raise ConnectionError
        return found

    async def work() -> list[str]:
        return await outer()

    @agent(durability=durability)
    async def main(run: Run[Any]) -> list[str]:
        return await run.scope("s", work) if where == "scope" else await work()

    assert run(workspace, main).result == ["a", "a", "b"]
    assert calls == ["a", "a", "b", "outer", "outer", "outer"]


@pytest.mark.parametrize("kind", ["step", "effect", "fallback"])
def test_a_retried_step_sees_what_its_first_attempt_has_made_of_its_arguments(
    workspace: Path, calls: list[str], kind: str
) -> None:
    async def add(to: list[str], model: str = "big") -> list[str]:
        to.append("seen")
        calls.append(f"{len(to)}")
        if len(calls) == 1:
            raise NotDone if kind == "effect" else ConnectionError
        return to

    retry = Retry(attempts=2, first=0)
    made: dict[str, Callable[[], Any]] = {
        "step": lambda: step(retry=retry)(add),
        "effect": lambda: effect(retry=retry)(add),
        "fallback": lambda: step(fallback=["small"])(add),
    }
    called = made[kind]()

    @agent
    async def main(run: Run[Any]) -> Any:
        return await called(["first"])

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "has changed its argument 'to'" in str(outcome.error)
    assert calls == ["2"]


def scaled(by: int) -> Any:
    @step
    def scale(number: int) -> int:
        return number * by

    return scale


def test_two_steps_of_one_name_get_each_others_results(workspace: Path, calls: list[str]) -> None:
    """Equal calls are told apart by their order, which may be another one at the next start."""
    double, triple = step(lambda number: 2 * number), step(lambda number: 3 * number)

    @agent
    async def main(run: Run[Any]) -> list[int]:
        first, second = (double, triple) if run.attempt == 1 else (triple, double)
        found = [await first(10), await second(10)]
        if run.attempt == 1:
            raise ConnectionError
        return found

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError)
    assert "two steps are called '<lambda>'" in str(outcome.error) and "test_steps.py:" in str(outcome.error)


def test_a_step_that_is_made_anew_or_called_elsewhere_is_taken_for_another(workspace: Path) -> None:
    def other() -> Any:
        @step
        def scale(number: int) -> int:
            return -number

        return scale

    @step
    async def outer() -> int:
        return int(await other()(1))

    @agent
    async def main(run: Run[Any]) -> list[int]:
        found = [await scaled(2)(1), await scaled(2)(1), await outer()]
        return [*found, await run.scope("s", lambda: other()(1))]

    assert run(workspace, main).result == [2, 2, -1, -1]


class Tool:
    """An object that is called as a function is."""

    def __init__(self, unit: str):
        self.unit = unit

    async def __call__(self, amount: int) -> tuple[int, str]:
        return amount, self.unit

    def convert(self, amount: int) -> tuple[int, str]:
        return amount, self.unit


async def converted(unit: str, amount: int) -> tuple[int, str]:
    return amount, unit


@pytest.mark.parametrize(
    "make",
    [Tool, lambda unit: partial(converted, unit), lambda unit: partial(Tool(unit)), lambda unit: Tool(unit).convert],
)
def test_a_step_is_made_of_a_function_only(workspace: Path, make: Callable[[str], Any], crash: Any) -> None:
    async def tell(unit: str) -> Any:
        return await step(make(unit), name="tool")(3)

    async def work(run: Run[Any]) -> Any:
        told = [await tell("EUR"), await tell("USD")]
        if run.attempt == 1:
            raise crash
        return told

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("s", partial(work, run))

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.error is None and outcome.result == [[3, "EUR"], [3, "USD"]] and outcome.answered == 2


@pytest.mark.parametrize("make", [Tool, lambda unit: partial(converted, unit)])
def test_an_effect_is_verified_by_a_function_only(workspace: Path, make: Callable[[str], Any], crash: Any) -> None:
    async def pay(amount: int) -> tuple[int, str]:
        raise crash

    @agent
    async def main(run: Run[Any]) -> tuple[int, str]:
        found: tuple[int, str] = await effect(verify=make("EUR"))(pay)(3)
        return found

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert (outcome.result, outcome.doubts) == ((3, "EUR"), [])
