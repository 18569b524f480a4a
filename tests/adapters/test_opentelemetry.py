"""The spans of a run: their tree, times and outcomes, after a crash too, and what they keep to themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import warm
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import satchel
from satchel import events
from satchel.adapters.opentelemetry import traced

AGENT = """
import os, signal
from satchel import Retry, agent, effect, step

@step(retry=Retry(attempts=2, first=0.01))
async def write(secret: str) -> str:
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise ConnectionError("503")
    return f"{secret}, written"

@step
async def check(secret: str) -> None:
    raise ValueError("wrong")

@effect(idempotent=True)
async def send(secret: str) -> str:
    if os.environ.get("DIES") and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{secret}, sent"

@agent
async def helper(run, secret: str):
    return await send(secret)

async def work(run, item):
    run.state["text"] = await write("hunter2")
    try:
        await check("hunter2")
    except ValueError:
        pass
    return await run.spawn(helper, "helper", "hunter2")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["learn hunter2"])
    await run.todo.each(work)
    await send("hunter2")
    if os.path.exists("fails"):
        raise KeyError("lost")
    return "hunter2"
"""


@pytest.fixture
def spans(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    (workspace / "agent.py").write_text(AGENT)
    monkeypatch.chdir(workspace)
    return InMemorySpanExporter()


def provider(spans: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


def trace(spans: InMemorySpanExporter, told: AsyncGenerator[events.Event, None]) -> list[events.Event]:
    async def all_of() -> list[events.Event]:
        return [event async for event in traced(told, provider(spans))]

    return asyncio.run(all_of())


def lines(spans: InMemorySpanExporter) -> list[str]:
    """A line for each span below its parent, in the order of their beginnings. A failed step begins and ends at its
    record, so within a millisecond the end decides."""
    found = sorted(spans.get_finished_spans(), key=lambda span: (span.start_time or 0, span.end_time or 0))

    def below(parent: int | None, depth: int) -> list[str]:
        told = []
        for span in found:
            if (span.parent.span_id if span.parent else None) == parent:
                told += [f"{' ' * depth}{said(span)}", *below(span.context.span_id, depth + 1)]
        return told

    return below(None, 0)


def said(span: ReadableSpan) -> str:
    facts: Any = span.attributes
    assert facts["satchel.run_id"] == "test-1"
    words = [span.name, facts["satchel.outcome"]]
    words += [facts[name] for name in ("satchel.item", "satchel.agent") if name in facts]
    if "satchel.attempts" in facts:
        words += ["effect" if facts["satchel.effect"] else "step", f"x{facts['satchel.attempts']}"]
    words += [f"{event.attributes['exception.type']}!" for event in span.events if event.attributes]
    assert (span.status.status_code is StatusCode.ERROR) == (facts["satchel.outcome"] in ("failed", "crashed"))
    return " ".join(words)


def test_a_span_is_missing_or_has_another_parent(spans: InMemorySpanExporter) -> None:
    told = trace(spans, satchel.stream("."))
    assert isinstance(told[-1], events.RunEnded) and told[-1].outcome.status == "completed", told[-1]
    assert lines(spans) == [
        "run completed",
        " item committed ^1",
        "  write returned ^1 step x2 ConnectionError!",
        "  check failed ^1 step x1 ValueError!",
        "  agent returned helper",
        "   send returned helper effect x1",
        " send returned effect x1",
    ]


def test_a_span_has_other_times_than_the_record(spans: InMemorySpanExporter) -> None:
    told = trace(spans, satchel.stream("."))
    found = {span.name: (span.start_time or 0, span.end_time or 0) for span in spans.get_finished_spans()}
    at = {type(event): datetime.fromisoformat(event.at).timestamp() for event in told}
    times = [nanoseconds / 1e9 for nanoseconds in found["run"]]
    assert times == pytest.approx([at[events.RunStarted], at[events.RunStopped]], abs=1e-5, rel=0)
    (written,) = [event for event in told if isinstance(event, events.StepCompleted) and event.step == "write"]
    began, ended = found["write"]
    assert ended / 1e9 == pytest.approx(datetime.fromisoformat(written.at).timestamp(), abs=1e-5, rel=0)
    assert ended - began == written.ms * 1_000_000


def test_a_span_tells_an_argument_a_result_or_a_title(spans: InMemorySpanExporter) -> None:
    trace(spans, satchel.stream("."))
    assert len(spans.get_finished_spans()) == 7
    assert not [span.name for span in spans.get_finished_spans() if "hunter2" in span.to_json()]


CALLING = """
import asyncio
from satchel import Run, agent, step

@step
async def complete(run: Run, prompt: str, output: int) -> str:
    await asyncio.sleep(0.01 * output)
    run.spend(tokens=100, output_tokens=output, model="gpt-5", usd=0.5)
    return prompt

@step(fallback=["small"])
async def draft(run: Run, prompt: str, model: str = "large") -> str:
    if model == "large":
        raise ConnectionError("503")
    run.spend(tokens=7)
    return prompt

@step
async def plain(run: Run) -> None:
    run.spend(usd=0.1)

@agent
async def main(run):
    run.spend(tokens=1)
    await asyncio.gather(complete("a", 30), complete("b", 20))
    await draft("c")
    await plain()
"""


def test_the_tokens_of_a_model_are_those_of_another_call(spans: InMemorySpanExporter) -> None:
    """Two calls at once, each with tokens of its own, and a fallback model."""
    Path("agent.py").write_text(CALLING)
    told = trace(spans, satchel.stream("."))
    assert isinstance(told[-1], events.RunEnded) and told[-1].outcome.status == "completed", told[-1]
    assert sum(event.tokens for event in told if isinstance(event, events.Spent)) == 208
    found = [
        (
            span.name,
            {
                key: value
                for key, value in (span.attributes or {}).items()
                if key.startswith(("gen_ai", "satchel.cost"))
            },
        )
        for span in spans.get_finished_spans()
    ]

    def of(model: str, tokens: int, output: int, **more: float) -> dict[str, Any]:
        names = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        return {**names, "gen_ai.usage.input_tokens": tokens - output, "gen_ai.usage.output_tokens": output} | {
            f"satchel.{name}": value for name, value in more.items()
        }

    assert sorted(found, key=str) == sorted(
        [
            ("complete", of("gpt-5", 100, 30, cost_usd=0.5)),
            ("complete", of("gpt-5", 100, 20, cost_usd=0.5)),
            ("draft", of("small", 7, 0)),
            ("plain", {"satchel.cost_usd": 0.1}),
            ("run", {}),
        ],
        key=str,
    )


def test_a_failed_run_has_no_error(spans: InMemorySpanExporter) -> None:
    Path("fails").touch()
    trace(spans, satchel.stream("."))
    assert lines(spans)[0] == "run failed KeyError!"


def test_what_a_kill_has_cut_off_has_no_span_or_looks_finished(spans: InMemorySpanExporter) -> None:
    """Read from the files, after another process has died and a third one has completed the run."""
    command = [sys.executable, "-c", "import satchel; satchel.run('.')"]
    for ended in (-signal.SIGKILL, 0):
        done = warm.run(command, env={**os.environ, "DIES": "1"}, timeout=60, check=False)
        assert done.returncode == ended
    read = trace(spans, satchel.open(".").events())
    assert lines(spans) == [
        "run crashed",
        " item crashed ^1",
        "  write returned ^1 step x2 ConnectionError!",
        "  check failed ^1 step x1 ValueError!",
        "  agent crashed helper",
        "   send crashed helper effect x1",
        "run completed",
        " agent returned helper",
        "  send returned helper effect x1",
        " item committed ^1",
        " send returned effect x1",
    ]
    first, second = sorted((span for span in spans.get_finished_spans() if span.name == "run"), key=began)
    assert not first.links and [link.context.span_id for link in second.links] == [first.context.span_id]
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {second.links[0].context.trace_id}
    spans.clear()
    trace(spans, satchel.open(".").events(after=read[0].seq))
    assert lines(spans)[0] == "run completed", "what began before the events has no span"
    (run,) = [span for span in spans.get_finished_spans() if span.name == "run"]
    assert run.context == second.context and run.links[0].context == second.links[0].context


def began(span: ReadableSpan) -> int:
    return span.start_time or 0


def ids(spans: InMemorySpanExporter) -> dict[int, tuple[int, int, str, int]]:
    """Of each span, by its id: its trace, its parent, its name and its beginning."""
    found = {
        span.context.span_id: (span.context.trace_id, span.parent.span_id if span.parent else 0, span.name, began(span))
        for span in spans.get_finished_spans()
    }
    assert len(found) == len(spans.get_finished_spans())
    return found


def test_a_run_that_is_read_twice_has_each_span_twice(spans: InMemorySpanExporter) -> None:
    """Live, by the process that is killed and the one that resumes, and later from the files: the same spans."""
    code = (
        "import asyncio, satchel, sys\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
        "from satchel.adapters.opentelemetry import traced\n"
        "made = TracerProvider(shutdown_on_exit=False)\n"
        "said = lambda span: f'{span.context.trace_id} {span.context.span_id} {span.name}\\n'\n"
        "made.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=said)))\n"
        "async def main():\n    async for event in traced(satchel.stream('.'), made): pass\n"
        "asyncio.run(main())"
    )
    live: list[str] = []
    for ended in (-signal.SIGKILL, 0):
        done = warm.run(
            [sys.executable, "-c", code],
            env={**os.environ, "DIES": "1"},
            timeout=60,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == ended
        live += done.stdout.splitlines()
    trace(spans, satchel.open(".").events())
    first = ids(spans)
    told = {f"{trace_id} {id} {name}" for id, (trace_id, _, name, _) in first.items()}
    assert len(live) == len({*live}) > 5
    assert {*live} <= told and {line.split()[2] for line in live} >= {"run", "item", "agent", "send", "write"}
    spans.clear()
    trace(spans, satchel.open(".").events())
    assert ids(spans) == first


def test_another_run_has_the_trace_of_this_one(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    """A fork goes another way, although it has begun with the same records."""
    satchel.run(".")
    fork = satchel.open(".").history.fork(str(tmp_path / "fork"), at=3)
    trace(spans, satchel.open(".").events())
    (own,) = {each[0] for each in ids(spans).values()}
    nonce = satchel.open(".").status().moment.run_nonce  # type: ignore[union-attr]
    assert nonce not in f"{own:032x}", "keys of effects are derived from it"
    spans.clear()
    satchel.open(fork.to).run()
    trace(spans, satchel.open(fork.to).events())
    (other,) = {each[0] for each in ids(spans).values()}
    assert other != own


def test_spans_stay_open_when_the_reader_leaves(spans: InMemorySpanExporter) -> None:
    made = provider(spans)

    async def leave() -> None:
        with made.get_tracer("test").start_as_current_span("request"):
            async with aclosing(traced(satchel.stream("."), made)) as told:
                async for event in told:
                    if isinstance(event, events.ItemBegun):
                        break

    asyncio.run(leave())
    found = {span.name: span for span in spans.get_finished_spans()}
    assert said(found["run"]) == "run unfinished" and said(found["item"]) == "item unfinished ^1"
    assert found["run"].parent is None, "its trace is that of the run"
    assert [link.context for link in found["run"].links] == [found["request"].context]
    assert satchel.open(".").status().state == "paused", "the stream is closed, too"


def test_without_opentelemetry_the_error_names_the_extra() -> None:
    code = (
        "import sys, satchel; sys.modules['opentelemetry'] = None\n"
        "try:\n    import satchel.adapters.opentelemetry\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'satchel[otel]'" in done.stdout
