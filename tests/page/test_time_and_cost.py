"""A run drawn in time, and its cost: the facts, the page, the command and the terminal tell the same of real runs."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
import warm
from api.test_answering import GRANTING
from cli.conftest import Cli

import satchel
from satchel.runtime.api import Overview
from satchel.runtime.history import past
from satchel.runtime.present import cost_lines, cost_tables, timing_lines
from satchel.runtime.present.usage_words import Axis
from satchel.runtime.status.activity import RunningCall
from satchel.workspace.base import time_text
from satchel.workspace.history import CallSpan, Cost, CostReport, ItemCost, RunTiming
from satchel.workspace.history.time_and_cost import _ROUNDED, _highest

from .conftest import make

pytest.importorskip("starlette", reason="the page needs starlette")

from starlette.testclient import TestClient

from satchel.runtime.faces.web.reading import CELLS, LANES
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site

QUICK = """
from satchel import agent, step

@step
def look(number):
    return number

async def work(run, item):
    for number in range(50):
        await look(number)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Boxes", ["one"])
    await run.todo.each(work)
"""

TIDES = """
import asyncio
from satchel import Retry, agent, effect, step

class Busy(Exception):
    status_code = 429

tries = []

@step(retry=Retry(attempts=4, first=0.01, longest=0.02))
async def think(text):
    tries.append(text)
    if len(tries) == 1:
        raise Busy("slow down")
    if len(tries) == 2:
        raise ConnectionError("<img src=x>")
    return text

@step
async def read(text):
    RUN.spend(tokens=100, output_tokens=30, usd=0.25, model="large-2")
    await barrier.wait()
    return text

@step
def wrong(text):
    raise ValueError(text)

@effect
def mail(text):
    return text

@agent
async def child(run):
    await think("deep")
    run.spend(tokens=7)

async def work(run, item):
    global barrier, RUN
    barrier, RUN = asyncio.Barrier(2), run
    if item.text == "first":
        await think("one")
        await asyncio.gather(read("left"), read("right"))
        await run.spawn(child, "reader")
        try:
            await wrong("<b>no</b>")
        except ValueError:
            pass
    else:
        await run.sleep(0.01)
        await run.ask("May I send <i>it</i>?", choices=["yes", "no"], wait_for=0)
        await mail("it")

@agent
async def main(run):
    if not run.todo.items:
        run.spend(usd=0.125)
        await run.plan("Tides", ["first", "second"])
    await run.todo.each(work)
"""


@pytest.fixture(scope="module")
def tides(tmp_path_factory: pytest.TempPathFactory) -> satchel.Handle:
    """A run that has waited for all that a run waits for, and has been started twice."""
    made = make(tmp_path_factory.mktemp("root") / "tides", TIDES, "budget: {usd: 1.0}\n")
    assert made.run().status == "waiting"
    made.answer("yes", question="a1", by="ada")
    assert made.resume().status == "completed"
    return made


@pytest.fixture(scope="module")
def page(tides: satchel.Handle) -> TestClient:
    return TestClient(make_app(Site(Overview(str(Path(tides.url).parent)))), base_url="http://127.0.0.1")


def calls(timing: RunTiming) -> dict[str, CallSpan]:
    return {call.name: call for item in timing.items for call in item.calls}


def kinds(call: CallSpan) -> list[str]:
    return [part.kind for part in call.parts]


def test_a_wait_or_a_failure_is_told_as_work(tides: satchel.Handle) -> None:
    timing = tides.history.timing()
    found = calls(timing)
    assert kinds(found["^1/1"])[:4] == ["failed", "limit", "failed", "retry"]
    assert [kinds(found[f"^1/{no}"]) for no in (2, 3)] == [["work"], ["work"]]
    assert kinds(found["^1/4"]) == ["failed"]
    assert [kinds(found[f"^2/{no}"]) for no in (1, 2)] == [["sleep"], ["person"]]
    assert [each.names[0] for each in timing.items] == ["^1", "reader/_agent", "^2"]
    left, right = found["^1/2"], found["^1/3"]
    assert left.begin <= right.end and right.begin <= left.end
    for item in timing.items:
        for call in item.calls:
            assert item.begin <= call.begin <= call.end <= item.end
            assert all(call.begin <= part.begin <= part.end <= call.end for part in call.parts)
    (gap,) = timing.gaps
    assert gap.kind == "waiting" and timing.begin < gap.begin < gap.end <= timing.end
    asked = found["^2/2"].parts[0]
    assert asked.begin <= gap.begin and asked.end <= gap.end


def test_who_answers_or_pauses_ends_a_gap(tmp_path: Path) -> None:
    made = make(tmp_path / "tides", TIDES)
    made.run()
    open_timing = made.history.timing()
    (open_gap,) = open_timing.gaps
    assert open_gap.kind == "waiting" and open_gap.end == open_timing.end
    made.pause(reason="lunch", by="ada")
    made.answer("yes", by="ada")
    made.resume()
    (gap,) = made.history.timing().gaps
    assert open_gap.begin == gap.begin, "who pauses or answers does no work"
    assert not calls(made.history.timing(at=1))


CRASHING = """
import os, pathlib, signal
from satchel import agent, step

@step
def first():
    return 1

@step
def second():
    mark = pathlib.Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2

@agent
async def main(run):
    await first()
    await second()
"""


def test_a_crash_is_no_gap(tmp_path: Path) -> None:
    made = make(tmp_path / "killed", CRASHING)
    command = [sys.executable, "-m", "satchel", "run", made.url]
    killed = warm.run(command, capture_output=True, text=True)
    if killed.returncode != 0:
        made.resume()
    timing = made.history.timing()
    assert made.status().state == "completed", killed.stderr
    assert [gap.kind for gap in timing.gaps] == ["crashed"]
    assert list(calls(timing)) == ["_agent/1", "_agent/2"]


def test_a_cost_is_missing_or_counted_twice(tides: satchel.Handle) -> None:
    report = tides.history.costs()
    usage = tides.status().moment.usage  # type: ignore[union-attr]
    assert (report.total.tokens, report.total.usd) == (usage.tokens, usage.usd) == (207, 0.625)
    for costs in (report.steps, report.models, report.items):
        assert (sum(each.tokens for each in costs), sum(each.usd for each in costs)) == (207, 0.625)
    assert [(each.name, each.usd) for each in report.steps] == [("read", 0.5), ("", 0.125)]
    assert [(each.name, each.usd) for each in report.models] == [("large-2", 0.5), ("", 0.125)]
    assert next((each.name, each.title, each.usd) for each in report.items) == ("^1", "first", 0.5)
    assert {each.name: each.step for each in report.calls} == {"^1/2": "read", "^1/3": "read"}
    assert [tides.history.call(each.seq).name for each in report.calls] == [each.name for each in report.calls]
    assert report.course[-1].usd == 0.625 and report.earlier.tokens == 0


def test_a_cost_before_the_kept_records_is_lost(tmp_path: Path) -> None:
    source = make(tmp_path / "source", TIDES)
    source.run()
    source.history.fork(tmp_path / "fork")
    report = satchel.open(tmp_path / "fork").history.costs()
    usage = satchel.open(tmp_path / "fork").status().moment.usage  # type: ignore[union-attr]
    assert (report.total.usd, report.total.tokens) == (usage.usd, usage.tokens)


def test_a_bar_leads_to_another_call(page: TestClient, tides: satchel.Handle) -> None:
    drawn = page.get("/run/tides/-/time")
    assert drawn.status_code == 200 and "<img src=x" not in drawn.text and "<b>no" not in drawn.text
    for kind in ("work", "failed", "limit", "retry", "person", "sleep"):
        assert f'class="k-{kind}"' in drawn.text, kind
    links = {unescape(link) for link in re.findall(r'href="(/run/tides/-/call[^"]+)"', drawn.text)}
    said = {link: page.get(link) for link in links}
    assert len(links) == len(calls(tides.history.timing())) and all(each.status_code == 200 for each in said.values())
    assert "waited" in drawn.text and "2 attempts failed" in drawn.text
    one = page.get("/run/tides/-/time?of=^2").text
    assert "sleep" in one and "wrong" not in one
    assert page.get("/run/tides/-/time?by=took").status_code == 200
    assert page.get("/run/tides/-/time?of=^9").status_code in (400, 404, 422)
    assert page.get("/run/tides/-/time?begin=9999").status_code == 200


def test_a_short_run_has_the_same_time_twice_on_its_axis() -> None:
    assert [text for _, text in Axis(0, 170, [(0, 170)]).ticks(4)] == ["0", "50 ms", "100 ms", "150 ms"]
    assert Axis(0, 4000, [(0, 4000)]).ticks(4)[1][1] == "1.0 s"


ONCE = """
from satchel import agent

@agent
async def main(run):
    run.spend(usd=0.0004)
"""


def test_a_long_wait_hides_calls_that_took_no_time_or_a_short_one_is_cut_out() -> None:
    axis = Axis(0, 100_000, [(0, 0), (5, 5), (300, 300)])
    assert axis.cuts == [(300, 100_000)] and axis.at(300) > 0.9
    assert Axis(0, 900, [(0, 5), (890, 900)]).cuts == []
    assert Axis(0, 100_000, [(0, 0)]).cuts == [], "nothing else is left to draw"


def test_a_call_that_runs_has_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is on record when it has ended."""
    made = make(tmp_path / "root/tides", GRANTING)
    made.run()
    since = time_text(datetime.now(UTC) - timedelta(seconds=90))
    call = RunningCall("", "1", 7, "write", '("a")', since, ("write", "", 0))
    monkeypatch.setattr(past, "running", lambda *_: [call, call._replace(scope="2")])
    found = calls(made.history.timing())["^1/7"]
    assert kinds(found) == ["work"] and found.end - found.begin > 80_000 and not found.is_over
    page = TestClient(make_app(Site(Overview(tmp_path / "root"))), base_url="http://127.0.0.1")
    assert '<a class="mono" href="/run/tides">write(&#34;a&#34;)</a>' in page.get("/run/tides/-/time").text
    assert not [each for each in calls(made.history.timing(at="latest")) if each.endswith("/7")]


def test_calls_of_one_millisecond_are_drawn_above_each_other_or_in_another_order(tmp_path: Path) -> None:
    """A record has whole milliseconds, and one write takes several records."""
    made = make(tmp_path / "a", QUICK)
    made.run()
    (item,) = made.history.timing().items
    assert [each.call.no for each in item.calls] == sorted(each.call.no for each in item.calls)
    spans = [*zip(item.calls, item.calls[1:], strict=False)]
    assert not [(one, other) for one, other in spans if one.end - _ROUNDED <= other.begin < one.end <= other.end]


def test_equal_costs_are_sorted_as_texts_or_the_others_have_the_longest_bar() -> None:
    items = [ItemCost(f"^{n}", usd=0.5) for n in range(1, 40)]
    (table,) = cost_tables(CostReport(Cost(usd=19.5), Cost(), [], [], _highest(items), [], []))
    assert [each.name for each in table.rows[:3]] == ["^1", "^2", "^3"]
    assert table.rest and (table.rest.share, table.rows[0].share) == (0.0, 1.0)


def test_costs_that_came_at_once_are_only_a_line_from_bottom_to_top(tmp_path: Path) -> None:
    make(tmp_path / "once", ONCE).run()
    page = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    text = page.get("/run/once/-/cost").text
    points = re.findall(r'<polyline class="sum" points="([^"]+)"', text)[0].split()
    assert "$0.0004" in text and points[0].startswith("0.0,") and points[-1].startswith("1000.0,")


def test_the_page_tells_no_cost(page: TestClient, tmp_path: Path) -> None:
    said = page.get("/run/tides/-/cost").text
    parts = "$0.625", "large-2", "^1  first", "By step", "By model", "By item", 'class="limit"', "$0.625 of $1.00"
    for part in parts:
        assert part.replace("  ", " ") in said, part
    dearest = [unescape(link) for link in re.findall(r'href="(/run/tides/-/call[^"]+)"', said)]
    assert len(dearest) == 2 and all("read" in page.get(link).text for link in dearest)
    make(tmp_path / "plain").run()
    other = TestClient(make_app(Site(Overview(str(tmp_path)))), base_url="http://127.0.0.1")
    assert "has reported no cost" in other.get("/run/plain/-/cost").text
    make(tmp_path / "new")
    assert other.get("/run/new/-/cost").status_code == other.get("/run/new/-/time").status_code


def test_the_command_draws_something_else(cli: Cli, tides: satchel.Handle) -> None:
    place = tides.url
    drawn = cli("steps", place, "--timeline")
    text = "".join(each for line in timing_lines(tides.history.timing()) for each, _ in line)
    assert drawn.exit_code == 0 and "".join(drawn.output.splitlines()) == text
    assert all(sign in drawn.output for sign in "█x~%?z") and "waited for a person for" in drawn.output
    told = json.loads(cli("steps", place, "--timeline", "--json").output)
    assert [each["name"] for each in told["items"]] == ["^1", "reader/_agent", "^2"]
    assert told["items"][2]["calls"][1]["parts"][0]["kind"] == "person" and told["gaps"][0]["kind"] == "waiting"
    assert "mail" in cli("steps", place, "2", "--timeline").output
    assert cli("steps", place, "9", "--timeline").exit_code != 0

    said = cli("steps", place, "--cost").output
    text = "".join(each for line in cost_lines(tides.history.costs(), tides.status().budget) for each, _ in line)
    assert "".join(said.splitlines()) == text and "$0.625 of $1.00" in said
    told = json.loads(cli("steps", place, "--cost", "--json").output)
    assert told["total"]["usd"] == 0.625 and told["budget"] == [{"kind": "usd", "used": 0.625, "limit": 1.0}]
    assert "leave out 2" in cli("steps", place, "2", "--cost").output.lower()


THOUSANDS = """
from satchel import agent, step

@step
def look(number):
    return number

async def work(run, item):
    run.spend(tokens=1, usd=0.5)
    for number in range(100):
        await look(number)

@agent(durability="pipelined")
async def main(run):
    if not run.todo.items:
        await run.plan("Many", [f"item {number}" for number in range(100)])
    await run.todo.each(work)
"""


@pytest.mark.slow
def test_ten_thousand_calls_make_a_huge_page(tmp_path: Path) -> None:
    made = make(tmp_path / "many", THOUSANDS)
    made.run()
    timing = made.history.timing()
    assert len(calls(timing)) == 10_000
    page = TestClient(make_app(Site(Overview(str(tmp_path)))), base_url="http://127.0.0.1")
    for query, rows in (("", LANES), (f"begin={LANES}", 100 - LANES), ("of=^7", LANES), ("by=took", LANES)):
        said = page.get(f"/run/many/-/time?{query}").text
        assert said.count('scope="row"') == rows and len(said.encode()) < 2_000_000, (query, len(said))
        assert said.count("<rect") <= rows * 3 * CELLS + 50
    cost = page.get("/run/many/-/cost").text
    assert "80 others" in cost and len(cost.encode()) < 100_000
    text = [*timing_lines(timing, 80)]
    assert len(text) < 110 and max(len("".join(each for each, _ in line)) for line in text[:-2]) <= 80
