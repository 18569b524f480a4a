"""Streamed output survives: what had arrived is in a file; the next attempt sees it, marked, and goes on from it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

import satchel
from satchel import Partial, Retry, Run, agent, run, step
from satchel.results import RecoveryMarker
from satchel.workspace.base.errors import AgentError, NotSerializable, UsageError

STORY = [f"word{number} " for number in range(400)]

CHILD = """
import asyncio, sys
from satchel import Partial, Run, agent, run, step

STORY = [f"word{number} " for number in range(400)]

@step
async def tell(name: str, out: Partial) -> str:
    if out.marker:
        print("MARKER", name, repr(str(out.marker)), flush=True)
    done = len(out.recovered or "")
    for word in STORY:
        if done >= len(word):
            done -= len(word)
            continue
        await out.write(word[done:])
        print("WROTE", name, len(out.text), flush=True)
        done = 0
        await asyncio.sleep(0.001)
    return out.text

@agent
async def main(run):
    return await asyncio.gather(tell("a"), tell("a"), tell("b"))

found = run(sys.argv[1], main)
print("RESULT", [text == "".join(STORY) for text in found.result], found.recovered)
"""


def partial_body(path: Path) -> str:
    return path.read_text().split("---\n", 2)[2]


@pytest.mark.sampled(every=3, rest="soak")
@pytest.mark.parametrize("words", [3, 50, 300, 900])
def test_a_stream_killed_in_the_middle_goes_on_without_gap_or_doubling(workspace: Path, words: int) -> None:
    command = [sys.executable, "-c", CHILD, str(workspace)]
    child = warm.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    for _ in range(words):
        assert child.stdout.readline().startswith("WROTE")
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.read()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL

    bodies = [partial_body(path) for path in sorted((workspace / "partials").rglob("*.md"))]
    assert len(bodies) == 3, "two equal streams at once are two files"
    assert all("".join(STORY).startswith(body) for body in bodies)

    done = warm.run(command, capture_output=True, text=True, check=True)
    markers = [line for line in done.stdout.splitlines() if line.startswith("MARKER")]
    assert len(markers) == 3
    for body in bodies:
        length = f"after {len(body)} characters by a crash"
        assert any(length in line or (not body and "before any" in line) for line in markers)
    kept = sum(map(len, bodies))
    assert f"RESULT [True, True, True] {kept}" in done.stdout
    assert not list((workspace / "partials").rglob("*.md"))
    recovered = [path.read_text() for path in sorted((workspace / "recovered").rglob("*.md"))]
    assert len(recovered) == 3
    assert all("[recovered: " in text for text in recovered), "a recovered text never looks finished"


def cut_off(times: int, crash: Any, seen: list[Any], *, word: str = "word ", **options: Any) -> Any:
    """An agent whose stream writes one word and dies, `times` times, and then ends."""

    async def tell(out: Partial) -> str:
        seen.append((out.recovered, out.marker))
        await out.write(word)
        if len(seen) <= times:
            raise crash
        return out.text

    told = step(**options)(tell)

    @agent
    async def main(run: Run[Any]) -> str:
        return await told()

    return main


def test_the_marker_says_what_was_cut_off(workspace: Path, crash: Any) -> None:
    seen: list[tuple[str | None, RecoveryMarker | None]] = []
    main = cut_off(1, crash, seen)
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "word word "
    assert seen[0] == (None, None)
    text, marker = seen[1]
    assert text == "word " and marker is not None
    assert (marker.kind, marker.step, marker.attempt, marker.characters) == ("recovered", "tell", 1, 5)
    assert (marker.cut_off_by, marker.damaged) == ("a crash", False)
    assert "not finished" in str(marker)


def test_after_two_recoveries_it_begins_anew(workspace: Path, crash: Any) -> None:
    seen: list[Any] = []
    main = cut_off(4, crash, seen)
    for _ in range(4):
        with pytest.raises(crash):
            run(workspace, main)
    assert run(workspace, main).result == "word word "
    assert [text for text, _ in seen] == [None, "word ", "word word ", None, "word "]
    assert len(list((workspace / "recovered").rglob("*.md"))) == 4


def test_restart_does_not_show_the_text_but_says_that_there_was_one(workspace: Path, crash: Any) -> None:
    seen: list[Any] = []
    main = cut_off(1, crash, seen, on_partial="restart")
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "word "
    assert seen[1][0] is None and seen[1][1].characters == 5


def test_accept_takes_the_text_and_it_does_not_look_finished(workspace: Path, crash: Any) -> None:
    seen: list[Any] = []
    main = cut_off(9, crash, seen, on_partial="accept")
    with pytest.raises(crash):
        run(workspace, main)
    result = run(workspace, main).result
    assert result.startswith("word \n\n[recovered: ") and "not finished" in result
    assert len(seen) == 1


def test_accept_is_refused_where_a_partial_cannot_be_the_result() -> None:
    with pytest.raises(UsageError, match="can't accept a partial"):

        @step(on_partial="accept")
        async def tell(out: Partial) -> int:
            return 1


def test_an_answer_cut_off_before_its_first_word_is_signalled(workspace: Path, crash: Any) -> None:
    seen: list[Any] = []
    main = cut_off(1, crash, seen, word="")
    with pytest.raises(crash):
        run(workspace, main)
    run(workspace, main)
    text, marker = seen[1]
    assert text == "" and marker.characters == 0 and "before any of the answer" in str(marker)


def test_a_stream_that_fails_is_continued_by_its_retry_in_the_same_process(workspace: Path) -> None:
    seen: list[Any] = []

    @step(retry=Retry(attempts=3, first=0))
    async def tell(out: Partial) -> str:
        seen.append((out.recovered, out.marker and out.marker.cut_off_by))
        await out.write("word ")
        if len(seen) < 3:
            raise ConnectionError("the line is dead")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    assert run(workspace, main).result == "word word word "
    assert seen == [
        (None, None),
        ("word ", "ConnectionError: the line is dead"),
        ("word word ", "ConnectionError: the line is dead"),
    ]


def test_a_partial_of_a_scope_is_in_that_scopes_folder_and_gone_when_it_has_committed(
    workspace: Path, crash: Any
) -> None:
    @step
    async def tell(out: Partial) -> str:
        await out.write("word ")
        if run_number == 1:
            raise crash
        return out.text

    async def work(run: Run[Any], item: Any) -> None:
        await tell()

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["Tell the story"])
        await run.todo.each(work)

    run_number = 1
    with pytest.raises(crash):
        run(workspace, main)
    assert partial_body(workspace / "partials/1-tell-the-story/01-tell.md") == "word "
    run_number = 2
    assert run(workspace, main).status == "completed"
    assert not (workspace / "partials").exists()
    assert (workspace / "recovered/1-tell-the-story/01-tell-1.md").exists()


def test_a_stream_stopped_by_a_signal_keeps_every_word(workspace: Path) -> None:
    @step
    async def tell(out: Partial) -> str:
        for word in STORY[:100]:
            await out.write(word)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    assert run(workspace, main, drain_timeout=0.5).status == "paused"
    assert partial_body(workspace / "partials/_agent/01-tell.md") == "".join(STORY[:100])


def test_only_text_can_be_written(workspace: Path) -> None:
    @step
    async def tell(out: Partial) -> str:
        await out.write(None)  # type: ignore[arg-type]
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    assert isinstance(run(workspace, main).error, TypeError)


def test_a_retry_that_was_refused_before_it_began_does_not_cost_the_text(workspace: Path) -> None:
    seen: list[Any] = []

    @step(retry=Retry(attempts=6, first=0))
    async def tell(out: Partial) -> str:
        seen.append((out.recovered, out.marker and out.marker.attempt))
        if len(seen) in (2, 3, 4):
            raise ConnectionError("too many requests")
        await out.write("word ")
        if len(seen) == 1:
            raise ConnectionError("the line is dead")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    outcome = run(workspace, main)
    assert outcome.result == "word word "
    assert seen == [(None, None), *[("word ", 1)] * 4]
    assert outcome.recovered == 5


def test_a_stream_cut_off_by_a_timeout_is_continued_in_the_same_process(workspace: Path) -> None:
    seen: list[Any] = []

    @step
    async def tell(out: Partial) -> str:
        seen.append(out.recovered)
        await out.write("word ")
        if len(seen) == 1:
            await asyncio.Event().wait()
        return out.text

    async def work(run: Run[Any]) -> str:
        return await tell()

    @agent
    async def main(run: Run[Any]) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run.scope("work", work, run)
        return await run.scope("work", work, run)

    assert run(workspace, main).result == "word word "
    assert seen == [None, "word "]


def test_a_writer_left_over_from_a_failed_attempt_cannot_mix_into_the_next(workspace: Path) -> None:
    late: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    @step(retry=Retry(attempts=2, first=0))
    async def tell(out: Partial) -> str:
        async def write_late() -> None:
            await go_on.wait()
            await out.write("late ")

        if not late:
            late.append(asyncio.ensure_future(write_late()))
            await asyncio.sleep(0)
            raise ConnectionError
        go_on.set()
        with pytest.raises(AgentError, match="whose step has ended"):
            await late[0]
        await out.write("right")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    assert run(workspace, main).result == "right"


def test_half_a_surrogate_pair_cannot_be_streamed_and_costs_nothing(workspace: Path) -> None:
    @step
    async def tell(out: Partial) -> str:
        await out.write("good ")
        await out.write("\ud83d")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    assert isinstance(run(workspace, main).error, NotSerializable)
    assert "good " in (workspace / "recovered/_agent/01-tell-1.md").read_text()


@pytest.mark.parametrize("declares", [None, "continue"])
@pytest.mark.parametrize("reads", ["", "recovered", "text"])
def test_a_step_that_does_not_look_at_recovered_text_doubles_it(
    workspace: Path, crash: type[BaseException], reads: str, declares: Any
) -> None:
    """The loop of a newcomer: it writes all that arrives, whatever was there."""

    @step(on_partial=declares)
    async def tell(out: Partial) -> str:
        if reads:
            assert getattr(out, reads) == ("" if reads == "text" else None) or attempts
        await out.write("one ")
        if not attempts:
            attempts.append(1)
            raise crash
        await out.write("two ")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    attempts: list[int] = []
    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    if reads or declares:
        assert (outcome.result, outcome.noticed) == ("one one two ", [])
        return
    assert outcome.result == "one two "
    (said,) = outcome.noticed
    assert "tell() has written its answer from the beginning" in said and "out.recovered" in said
    lines = [line for path in workspace.glob("journal/*.jsonl") for line in path.read_text().splitlines()]
    assert sum('"how":"restarted"' in line for line in lines) == 1


def test_secrets_of_a_text_that_begins_anew_are_shown(
    workspace: Path, crash: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret-value")
    (workspace / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text() + "redact: {env: [TOKEN]}\n")

    @step
    async def tell(out: Partial) -> str:
        await out.write("the token is s3cret-")
        if not attempts:
            attempts.append(1)
            raise crash
        await out.write("value.")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    attempts: list[int] = []
    with pytest.raises(crash):
        run(workspace, main)
    assert str(run(workspace, main).result).count("the token is") == 1
    for path in workspace.rglob("*"):
        assert path.is_dir() or b"s3cret-value" not in path.read_bytes(), path


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_pattern_takes_a_continued_answer_for_a_new_one(
    workspace: Path, crash: type[BaseException], goes_on: bool
) -> None:
    """`^` is the beginning of the answer, in its file and in its result."""
    written = (workspace / "workspace.yaml").read_text()
    (workspace / "workspace.yaml").write_text(written + "redact: {patterns: ['^sk-[a-z]+']}\n")

    @step
    async def tell(out: Partial) -> str:
        if goes_on and out.recovered is not None:
            assert out.recovered == "We know "
        if not attempts:
            attempts.append(1)
            await out.write("We know " + "x" * 256)
            raise crash
        await out.write("sk-open and sk-more" + "x" * 256)
        out.file.write()  # whatever the 5% rule says
        (partial,) = (workspace / "partials").rglob("*.md")
        shown.append(partial.read_text().split("---\n", 2)[2])
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await tell()

    attempts: list[int] = []
    shown: list[str] = []
    with pytest.raises(crash):
        run(workspace, main)
    result = str(run(workspace, main).raise_for_status().result)
    assert result.rstrip("x") == ("We know sk-open and sk-more" if goes_on else "[redacted] and sk-more")
    assert shown == [result.removesuffix("x" * 256)]


EDITS: dict[str, tuple[str, str, str]] = {
    "longer": ("word ", "word, as Ada corrected it, and ", "31 characters of an unfinished answer, as a person has"),
    "as long": ("word ", "Wort ", "5 characters of an unfinished answer, as a person has edited it"),
    "shorter": ("word ", "wo", "2 characters of an unfinished answer, damaged: it had 5"),
    "a last line end": ("word ", "word \n", "5 characters of an unfinished answer;"),
}


@pytest.mark.parametrize("where", ["partials", "recovered"])
@pytest.mark.parametrize("edit", EDITS)
def test_what_a_person_made_of_a_cut_off_answer_is_cut_in_a_word(
    workspace: Path, crash: Any, edit: str, where: str
) -> None:
    """In partials/ before a start, or in recovered/ after it."""
    seen: list[tuple[str | None, RecoveryMarker | None]] = []
    main = cut_off(1, crash, seen)
    with pytest.raises(crash):
        run(workspace, main)
    if where == "recovered":
        satchel.open(workspace).recover()
    (file,) = (workspace / where).rglob("*.md")
    was, now, said = EDITS[edit]
    head, _, body = file.read_text().rpartition("---\n")
    assert body.startswith(was)
    file.write_text(f"{head}---\n{now}{body.removeprefix(was)}")
    outcome = run(workspace, main)
    text, marker = seen[1]
    wanted = now.removesuffix("\n") if where == "partials" else now
    assert text == wanted and marker is not None
    assert f"after {len(wanted)} characters" in str(marker)
    if where == "partials":
        assert any(said in str(remark) for remark in outcome.report.remarks), outcome.report.remarks
        (record,) = (row.record for row in satchel.open(workspace).history.log(type="partial.promoted"))
        assert record.get("edited", False) == ("person" in said) and record["damaged"] == (edit == "shorter")
