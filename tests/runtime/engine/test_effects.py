"""Effects: never done twice unknowingly, never silently skipped."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from satchel import Key, NotDone, Retry, Run, agent, effect, run, run_async, step
from satchel.workspace.base.errors import StorageFailed, UsageError
from satchel.workspace.inbound import open_questions
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import NOTHING, Resolved
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, Syscalls


def resolve(workspace: Path, id: str, outcome: Any, result: bytes = b"") -> None:
    with opened(DiskStore(workspace), "answer", Report()) as found:
        found.journal.add(Resolved(id=id, outcome=outcome, by="tester", result=Raw(result) if result else NOTHING))
        found.journal.flush()
        found.close()


def test_a_finished_effect_is_not_repeated(workspace: Path, calls: list[str], crash: Any) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return "sent"

    @agent
    async def main(run: Run[Any]) -> str:
        found = await send("hello")
        if run.attempt == 1:
            raise crash
        return found

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "sent"
    assert calls == ["hello"]


def test_the_intent_is_durable_before_the_effect_starts(workspace: Path) -> None:
    seen: list[str] = []

    @effect
    async def send(text: str, *, key: str) -> None:
        seen.append((workspace / "journal/000000000001.jsonl").read_text())
        seen.append(key)

    @agent
    async def main(run: Run[Any]) -> None:
        await send("hello")

    run(workspace, main)
    last = seen[0].splitlines()[-1]
    assert '"step.started"' in last and f'"idempotency_key":"{seen[1]}"' in last and '"hello"' in last


def dies_once(calls: list[str], crash: Any, **options: Any) -> Any:
    """An agent whose effect dies in the middle at the first attempt."""

    async def send(text: str, *, key: str) -> str:
        calls.append(key)
        if len(calls) == 1:
            raise crash
        return "sent"

    sent = effect(**options)(send)

    @agent
    async def main(run: Run[Any]) -> Any:
        return await sent("hello")

    return main


def test_an_effect_that_died_is_asked_about_and_the_run_waits(workspace: Path, calls: list[str], crash: Any) -> None:
    main = dies_once(calls, crash)
    with pytest.raises(crash):
        run(workspace, main)
    for _ in range(2):  # asking again and again does nothing
        outcome = run(workspace, main)
        assert outcome.status == "waiting"
        assert [doubt.id for doubt in outcome.doubts] == ["d1"]
    assert len(calls) == 1
    (doubt,) = outcome.doubts
    with opened(DiskStore(workspace), "answer", Report()) as found:
        (asked,) = open_questions(found.moment)
        found.close()
    assert 'send("text":"hello")' in asked.text and asked.id == doubt.id and asked.choices == ("done", "redo")
    assert "Has it happened?" in (workspace / "approvals/d1.yaml").read_text()


@pytest.mark.parametrize("options, is_entered", [({}, False), ({"idempotent": True, "retry": Retry(attempts=1)}, True)])
def test_a_start_enters_a_run_that_waits_for_what_only_a_person_can_say(
    workspace: Path, calls: list[str], options: dict[str, Any], is_entered: bool
) -> None:
    entered: list[int] = []

    @effect(**options)
    async def send() -> str:
        calls.append("send")
        raise TimeoutError("no answer")

    @agent
    async def main(run: Run[Any]) -> str:
        entered.append(run.attempt)
        return await send()

    assert run(workspace, main).status == "waiting" and entered == [1]
    journal = [path.read_bytes() for path in workspace.glob("journal/*")]
    outcome = run(workspace, main)
    assert (outcome.status, outcome.entered, len(outcome.doubts)) == ("waiting", is_entered, 1)
    assert is_entered or journal == [path.read_bytes() for path in workspace.glob("journal/*")]
    outcome = run(workspace, main, wake=True)
    assert outcome.entered, "a person wants it to be tried"
    resolve(workspace, outcome.doubts[0].id, "done", b'"seen"')
    assert run(workspace, main).result == "seen" and calls == ["send"] * (3 if is_entered else 1)


def test_a_person_can_say_that_it_has_happened(workspace: Path, calls: list[str], crash: Any) -> None:
    main = dies_once(calls, crash)
    with pytest.raises(crash):
        run(workspace, main)
    run(workspace, main)
    resolve(workspace, "d1", "done", b'"seen in the mailbox"')
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result, outcome.doubts) == ("completed", "seen in the mailbox", [])
    assert len(calls) == 1


def test_a_person_can_say_that_it_has_not_happened(workspace: Path, calls: list[str], crash: Any) -> None:
    main = dies_once(calls, crash)
    with pytest.raises(crash):
        run(workspace, main)
    run(workspace, main)
    resolve(workspace, "d1", "not_done")
    assert run(workspace, main).result == "sent"
    assert len(calls) == 2 and calls[0] == calls[1], "the idempotency key is the same at every attempt"


def test_an_idempotent_effect_is_repeated_under_the_same_key(workspace: Path, calls: list[str], crash: Any) -> None:
    main = dies_once(calls, crash, idempotent=True)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "sent"
    assert len(calls) == 2 and calls[0] == calls[1]


def test_verify_finds_the_result_of_an_effect_that_died(workspace: Path, calls: list[str], crash: Any) -> None:
    def was_sent(text: str, key: str) -> str:
        assert key == calls[0]
        return f"found {text}"

    main = dies_once(calls, crash, verify=was_sent)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "found hello"
    assert len(calls) == 1


def test_verify_is_told_which_run_it_is_of(workspace: Path, calls: list[str], crash: Any) -> None:
    """What it looks into is often a resource of the run."""

    def was_sent(text: str, of: Run[Any]) -> str:
        return f"found {text} in attempt {of.attempt}"

    main = dies_once(calls, crash, verify=was_sent)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "found hello in attempt 2"
    assert len(calls) == 1


def test_verify_finds_that_it_has_not_happened_and_it_is_done(workspace: Path, calls: list[str], crash: Any) -> None:
    async def was_sent(text: str) -> str:
        raise NotDone

    main = dies_once(calls, crash, verify=was_sent)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "sent"
    assert len(calls) == 2


def test_a_verify_that_fails_leaves_the_doubt(workspace: Path, calls: list[str], crash: Any) -> None:
    def was_sent(text: str) -> str:
        raise ConnectionError("mailbox away")

    main = dies_once(calls, crash, verify=was_sent)
    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "waiting" and "mailbox away" in outcome.doubts[0].cause
    assert len(calls) == 1


def test_a_timeout_after_delivery_is_a_doubt_and_is_not_retried(workspace: Path, calls: list[str]) -> None:
    @effect(retry=Retry(attempts=5, first=0))
    async def send(text: str) -> None:
        calls.append(text)
        raise TimeoutError("no answer, but it was delivered")

    @agent
    async def main(run: Run[Any]) -> None:
        for _ in range(3):
            try:
                await send("hello")
            except Exception:
                continue

    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert "no answer" in outcome.doubts[0].cause
    assert calls == ["hello"]


def test_a_cancelled_effect_is_a_doubt_and_the_agent_cannot_call_it_again(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send(text: str) -> None:
        calls.append(text)
        await asyncio.Event().wait()

    @agent
    async def main(run: Run[Any]) -> None:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.01):
                    await send("hello")
            except TimeoutError:
                continue

    outcome = run(workspace, main)
    assert (outcome.status, calls) == ("waiting", ["hello"])
    assert outcome.doubts[0].cause == "it was cancelled"


def test_not_done_is_a_failure_like_any_other(workspace: Path, calls: list[str]) -> None:
    @effect(not_done=(ConnectionRefusedError,), retry=Retry(attempts=3, first=0))
    async def send(text: str) -> str:
        calls.append(text)
        if len(calls) < 3:
            raise ConnectionRefusedError("nobody listens")
        return "sent"

    @agent
    async def main(run: Run[Any]) -> str:
        return await send("hello")

    assert run(workspace, main).result == "sent"
    assert len(calls) == 3


def test_not_done_in_an_earlier_attempt_is_no_doubt(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise NotDone("the door was closed")
        return "sent"

    @agent
    async def main(run: Run[Any]) -> str:
        return await send("hello")

    assert isinstance(run(workspace, main).error, NotDone)
    assert run(workspace, main).result == "sent"


def test_an_argument_that_holds_the_time_is_asked_about_not_repeated(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return f"receipt for {text}"

    async def work(run: Run[Any], item: Any) -> str:
        found = await send(f"it is {min(run.attempt, 2)} o'clock")
        if run.attempt == 1:
            raise crash
        return found

    @agent
    async def main(run: Run[Any]) -> Any:
        if not run.todo.items:
            await run.plan(None, ["send"])
        await run.todo.each(work)
        return run.todo.result("send")

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert outcome.doubts[0].why == "unclaimed"
    (question,) = [each.text for each in open_questions(look(DiskStore(workspace)).moment)]
    assert 'called send("text":"it is 1 o\'clock"), which returned "receipt for it is 1 o\'clock".' in question
    assert calls == ["it is 1 o'clock"]
    resolve(workspace, "d1", "done")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "receipt for it is 1 o'clock")
    assert len(calls) == 1


def test_an_unclaimed_effect_that_a_person_lets_be_done_anew(workspace: Path, calls: list[str], crash: Any) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise crash
        return "sent"

    @agent
    async def main(run: Run[Any]) -> str:
        return await send(f"it is {min(run.attempt, 2)} o'clock")

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "waiting"
    resolve(workspace, "d1", "not_done")
    assert run(workspace, main).result == "sent"
    assert calls == ["it is 1 o'clock", "it is 2 o'clock"]


def test_a_named_effect_is_equal_whatever_its_arguments(workspace: Path, calls: list[str], crash: Any) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return text

    @agent
    async def main(run: Run[Any]) -> list[str]:
        found = [await send.named(f"mail {i}")(f"{i} at {run.attempt}") for i in range(3)]
        if run.attempt == 1:
            raise crash
        return found

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["0 at 1", "1 at 1", "2 at 1"]
    assert len(calls) == 3


def test_an_effect_in_doubt_that_is_not_reached_again_holds_the_commit(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @effect
    async def send(text: str) -> str:
        calls.append(text)
        raise crash

    async def work(run: Run[Any], item: Any) -> None:
        if run.attempt == 1:
            await send("hello")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["maybe send"])
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert outcome.doubts[0].why == "unreached"
    resolve(workspace, "d1", "not_done")
    assert run(workspace, main).status == "completed"
    assert calls == ["hello"]


def test_an_effect_whose_result_cannot_be_kept_is_in_doubt_not_repeated(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send() -> Any:
        calls.append("send")
        return object()

    @agent
    async def main(run: Run[Any]) -> None:
        await send()

    outcome = run(workspace, main)
    assert outcome.status == "waiting" and "can't be kept" in outcome.doubts[0].cause
    run(workspace, main)
    assert calls == ["send"]


def test_several_effects_in_doubt_at_once_are_all_asked_about(workspace: Path, calls: list[str]) -> None:
    all_begun = asyncio.Event()

    @effect
    async def send(number: int) -> None:
        calls.append(str(number))
        if len(calls) == 3:
            all_begun.set()
        await all_begun.wait()
        raise TimeoutError

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(*(send(number) for number in range(3)), return_exceptions=True)

    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert [doubt.id for doubt in outcome.doubts] == ["d1", "d2", "d3"]
    assert run(workspace, main).status == "waiting"
    assert sorted(calls) == ["0", "1", "2"]


def test_an_agent_that_catches_everything_still_stops(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send() -> None:
        calls.append("send")
        raise TimeoutError

    @step
    async def after() -> None:
        calls.append("after")

    async def work(run: Run[Any], item: Any) -> None:
        for call in (send, after, send):
            try:
                await call()
            except BaseException:
                continue

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        try:
            await run.todo.each(work)
        except BaseException:
            return

    outcome = run(workspace, main)
    assert (outcome.status, calls) == ("waiting", ["send"])
    assert "- [/] a ^1" in (workspace / "todo.md").read_text()


def test_an_effect_of_a_task_beside_it_is_not_taken_for_unclaimed(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @step
    async def prepare(name: str) -> str:
        return name

    @effect
    async def send(name: str) -> str:
        calls.append(name)
        return name

    async def branch(name: str, steps: int) -> str:
        for number in range(steps):
            await prepare(f"{name}{number}")
        return await send(name)

    @agent
    async def main(run: Run[Any]) -> list[str]:
        if run.attempt == 1:
            await branch("slow", 3)
            raise crash
        return await asyncio.gather(branch("quick", 0), branch("slow", 3))

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["quick", "slow"]
    assert calls == ["slow", "quick"]


def test_an_answer_of_the_wrong_type_is_asked_about_again(workspace: Path, calls: list[str]) -> None:
    @effect
    async def count() -> int:
        calls.append("count")
        raise TimeoutError

    @agent
    async def main(run: Run[Any]) -> int:
        return await count()

    run(workspace, main)
    resolve(workspace, "d1", "done", b'"many"')
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert "can't be used" in outcome.doubts[0].cause and outcome.doubts[0].id == "d2"
    resolve(workspace, "d2", "done", b"3")
    assert run(workspace, main).result == 3
    assert calls == ["count"]


def test_an_effect_whose_result_could_never_be_read_back_is_refused_at_its_decoration() -> None:
    class Foreign:
        pass

    async def send() -> Any: ...

    send.__annotations__["return"] = dict[str, list[Foreign]]
    with pytest.raises(UsageError, match="Foreign is not JSON"):
        effect(send)


def test_names_that_are_defined_after_a_step_are_found_at_its_first_call(workspace: Path) -> None:
    async def send() -> Any:
        return {"text": "sent"}

    send.__annotations__["return"] = "Later"
    sent = effect(send)
    send.__globals__["Later"] = dict[str, str]

    @agent
    async def main(run: Run[Any]) -> dict[str, str]:
        return await sent()

    try:
        assert run(workspace, main).result == {"text": "sent"}
    finally:
        del send.__globals__["Later"]


def test_an_effect_inside_a_step_is_refused(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send(text: str) -> None:
        calls.append(text)

    @step(retry=Retry(attempts=3, first=0))
    async def outer() -> None:
        await send("hello")
        raise ConnectionError

    @agent
    async def main(run: Run[Any]) -> None:
        await outer()

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "the effect send was called inside <step outer>" in str(outcome.error)
    assert calls == []


def test_what_may_have_happened_is_not_settled_by_a_later_attempt_that_did_not(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    @effect(idempotent=True, not_done=(ConnectionRefusedError,))
    async def send(text: str) -> str:
        calls.append(text)
        if len(calls) == 1:
            raise crash  # delivered, perhaps
        raise ConnectionRefusedError

    async def work(run: Run[Any]) -> None:
        try:
            await send("hello")
        except ConnectionRefusedError:
            return

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "waiting"


def test_a_failing_disk_after_an_effect_is_no_doubt_about_it(workspace: Path, calls: list[str]) -> None:
    refused = threading.Event()

    class FullForSteps(Syscalls):
        def rename(self, source: str, target: str) -> None:
            if "/steps/" in target and calls:
                refused.set()
                raise OSError(errno.ENOSPC, "full")
            super().rename(source, target)

        def link(self, source: str, target: str) -> None:
            if "/steps/" in target and calls:
                refused.set()
                raise OSError(errno.ENOSPC, "full")
            super().link(source, target)

    @effect(idempotent=True, retry=Retry(attempts=3, first=0))
    async def send() -> None:
        calls.append("send")

    @agent
    async def main(run: Run[Any]) -> None:
        await send()
        await asyncio.to_thread(refused.wait, 20)  # a run that ends at once may need no file for it

    with pytest.raises(StorageFailed):
        run(DiskStore(workspace, FullForSteps()), main)
    outcome = run(workspace, main)
    assert (outcome.status, outcome.doubts, calls) == ("completed", [], ["send"])


def test_an_exception_whose_text_cannot_be_kept_does_not_hide_the_doubt(workspace: Path) -> None:
    @effect
    async def send() -> None:
        raise ValueError("caf\udce9" + "x" * 200_000)

    @agent
    async def main(run: Run[Any]) -> None:
        await send()

    outcome = run(workspace, main)
    assert outcome.status == "waiting" and "caf\\udce9" in outcome.doubts[0].cause


def test_nothing_begins_after_the_run_has_ended(workspace: Path, calls: list[str]) -> None:
    """The task is cancelled twice, so that nobody waits any more for the effect that is between its attempts."""
    began = asyncio.Event()

    @effect(not_done=(ConnectionRefusedError,), retry=Retry(attempts=9, first=0.2, longest=0.2))
    async def send() -> None:
        calls.append("send")
        began.set()
        raise ConnectionRefusedError

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(asyncio.shield(asyncio.ensure_future(send())))

    async def program() -> list[str]:
        task = asyncio.ensure_future(run_async(workspace, main))
        await began.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        ended = list(calls)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        return ended

    ended = asyncio.run(program())
    assert calls == ended
    last = (workspace / "journal/000000000001.jsonl").read_text().splitlines()[-1]
    assert '"type":"closed"' in last


def test_a_key_in_another_place_than_the_last_is_not_handed_over(workspace: Path, calls: list[str]) -> None:
    @effect
    async def first(key: str, *parts: str) -> str:
        return f"{len(key)} {parts}"

    @effect
    async def typed(token: Key, text: str, /, top: Run[Any], **options: int) -> str:
        return f"{len(token)} {text} {top.attempt} {options}"

    @effect
    async def middle(text: str, token: Key, more: str = "m") -> str:
        return f"{text} {len(token)} {more}"

    async def was_sent(token: Key, text: str) -> str:
        calls.append(token)
        return text

    @effect(verify=was_sent)
    async def verified(token: Key, text: str) -> str:
        calls.append(token)
        raise TimeoutError

    with pytest.raises(UsageError, match="wrong has no idempotency key"):

        @step
        def wrong(token: Key) -> None: ...

    @agent
    async def main(run: Run[Any]) -> list[str]:
        return [await first("a", "b"), await typed("t", n=1), await middle("x", more="y"), await verified("v")]

    outcome = run(workspace, main)
    assert outcome.result == ["32 ('a', 'b')", "32 t 1 {'n': 1}", "x 32 y", "v"], outcome.error
    assert len(calls) == 2 and calls[0] == calls[1]


@pytest.mark.parametrize("kind", [Exception, BaseException])
def test_a_result_that_cannot_be_kept_is_taken_for_not_done(workspace: Path, calls: list[str], kind: Any) -> None:
    """`not_done` is about what the function raises: it has returned."""

    @effect(not_done=(kind,), retry=Retry(attempts=3, first=0))
    async def send() -> Any:
        calls.append("send")
        return object()

    @agent
    async def main(run: Run[Any]) -> None:
        for _ in range(3):
            with suppress(Exception):
                await send()

    outcome = run(workspace, main)
    assert outcome.status == "waiting" and "can't be kept" in outcome.doubts[0].cause
    assert calls == ["send"]


def test_an_error_of_satchel_after_the_effect_is_taken_for_not_done(workspace: Path, calls: list[str]) -> None:
    @effect(not_done=(Exception,))
    async def send(run: Run[Any]) -> None:
        calls.append("send")
        run.spend(tokens=-1)

    @agent
    async def main(run: Run[Any]) -> None:
        await send()

    for _ in range(2):
        assert run(workspace, main).status == "waiting"
    assert calls == ["send"]


def test_an_error_of_satchel_that_not_done_names_is_not_believed(workspace: Path, calls: list[str]) -> None:
    @effect(not_done=(UsageError,), retry=Retry(attempts=2, first=0, on=(UsageError,)))
    async def send(run: Run[Any]) -> None:
        calls.append("send")
        run.spend(tokens=-1)

    @agent
    async def main(run: Run[Any]) -> None:
        await send()

    assert isinstance(run(workspace, main).error, UsageError)


def test_a_cancellation_between_an_effect_and_its_record_leaves_a_doubt(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    """It comes when the function has returned, while the record waits for company."""

    @effect
    async def send() -> str:
        calls.append("sent")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "receipt"

    async def work(run: Run[Any]) -> Any:
        (found,) = await asyncio.gather(send(), return_exceptions=True)
        if run.attempt == 1:
            assert isinstance(found, asyncio.CancelledError)
            raise crash
        return found

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("send", work, run)

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result, calls) == ("completed", "receipt", ["sent"])


def test_equal_calls_of_branches_of_other_speed_are_done_again_or_share_a_result(
    workspace: Path, calls: list[str], crash: Any
) -> None:
    """Which branch gets which result is not fixed: nothing but the order tells equal calls apart. `named` does."""

    @step
    async def prepare(name: str) -> None:
        await asyncio.sleep(0)

    @effect
    async def ticket(of: str) -> str:
        calls.append(of)
        return f"ticket {len(calls)}"

    async def branch(name: str, steps: int) -> tuple[str, str]:
        for number in range(steps):
            await prepare(f"{name}{number}")
        return await ticket("one"), await ticket.named(name)("other")

    @agent
    async def main(run: Run[Any]) -> list[tuple[str, str]]:
        slow, quick = (3, 0) if run.attempt == 1 else (0, 3)
        found = list(await asyncio.gather(branch("a", slow), branch("b", quick)))
        if run.attempt == 1:
            first.extend(found)
            raise crash
        return found

    first: list[tuple[str, str]] = []
    with pytest.raises(crash):
        run(workspace, main)
    found = run(workspace, main).result
    assert len(calls) == 4
    assert sorted(one for one, _ in found) == sorted(one for one, _ in first), "each result is used once"
    assert [named for _, named in found] == [named for _, named in first]
