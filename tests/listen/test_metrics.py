"""`/metrics`, `/healthz` and `/readyz`: of `satchel serve --metrics`, which is killed and started again, and of the
page."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import warm
from click.testing import CliRunner

pytest.importorskip("prometheus_client")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_older
from starlette.testclient import TestClient
from waits import PATIENCE

from satchel.runtime.cli.group import group
from satchel.runtime.faces.http.metrics import families, metering
from satchel.runtime.faces.web.server import Rules, make_app
from satchel.runtime.faces.web.site import Site
from satchel.runtime.status import Overview
from satchel.runtime.supervision import Census
from satchel.workspace.base.errors import UsageError

TOKEN = "a-token-for-tests-9c2f"
OPEN = {"accept": "application/openmetrics-text; version=1.0.0"}
DOCUMENTED = re.compile(r"^\| `(satchel_\w+)(?:\{(\w+)\})?` \| (\w+) \| ([^|]+) \|", re.MULTILINE)

DIES_ONCE = """
import os, signal
from satchel import agent, step

@step
def one(n: int) -> int:
    if n == 2 and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return n

@agent
async def main(run):
    for n in range(4):
        run.spend(tokens=10, usd=0.25)
        await one(n)
    await run.ask("Go on?")
"""


class Reply:
    def __init__(self, status: int, kind: str, text: str):
        self.status, self.kind, self.text = status, kind, text

    @property
    def samples(self) -> dict[str, float]:
        """Each by its name and labels. The parser refuses what is no OpenMetrics."""
        return {
            sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
            for family in openmetrics.text_string_to_metric_families(self.text)
            for sample in family.samples
        }


def ask(url: str, path: str = "/metrics", **headers: str) -> Reply:
    address = url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=OPEN | headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers["content-type"], answer.read().decode())
    finally:
        connection.close()


@contextmanager
def served(root: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A `satchel serve` with metrics at a free port."""
    command = [sys.executable, "-m", "satchel", "serve", "--json", "--metrics", "0", *words, str(root)]
    with warm.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            listening = json.loads(process.stdout.readline())
            assert listening["event"] == "listening" and listening["text"].endswith("/metrics"), listening
            yield listening["text"], process
        finally:
            process.kill()
            print(process.stdout.read())  # of a test that fails


def until(url: str, is_so: Callable[[dict[str, float]], object]) -> dict[str, float]:
    """The first numbers of which that is so. Looks come each second, and nothing tells of them."""
    end = time.monotonic() + PATIENCE
    while not is_so(found := ask(url).samples):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_counter_of_serve_falls_or_counts_twice(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "letters"
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: letters-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(DIES_ONCE)
    with served(tmp_path / "runs") as (url, process):
        done = until(url, lambda found: found["satchel_runs waiting"])
        counted = {name: value for name, value in done.items() if name.endswith("_total")}
        assert counted == {
            "satchel_starts_total": 2,
            "satchel_crashes_total": 1,
            "satchel_takeovers_total": 1,
            "satchel_steps_total": 4,
            "satchel_retries_total": 0,
            "satchel_tokens_total": 40,
            "satchel_cost_usd_total": 1.0,
        }
        looks = done["satchel_look_seconds_count"]
        later = until(url, lambda found: found["satchel_look_seconds_count"] > looks + 1)
        assert {name: later[name] for name in counted} == counted, "read twice"
        assert later["satchel_questions_open"] == 1 and later["satchel_questions_oldest_seconds"] > 0
        assert ask(url, "/readyz").status == ask(url, "/healthz").status == 200
        process.kill()
        process.wait()
    with served(tmp_path / "runs") as (url, process):
        again = until(url, lambda found: found["satchel_look_seconds_count"] > 1)
        assert not any(again[name] for name in counted), "a reset, as Prometheus expects: it adds nothing"
        assert again["satchel_runs waiting"] == again["satchel_questions_open"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_serve_is_ready_while_its_root_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    with served(root) as (url, _):
        until(url, lambda found: found["satchel_look_seconds_count"])
        assert ask(url, "/readyz").status == 200
        root.rename(tmp_path / "away")
        end = time.monotonic() + PATIENCE
        while (told := ask(url, "/readyz")).status == 200:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert told.status == 503 and ask(url, "/healthz").status == 200
        (tmp_path / "away").rename(root)
        while ask(url, "/readyz").status != 200:
            assert time.monotonic() < end
            time.sleep(0.05)


def documented() -> dict[str, tuple[str, str]]:
    """Of each metric in the table of the page: its label, and its type."""
    page = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    return {name: (label, kind) for name, label, kind, _ in DOCUMENTED.findall(page)}


def test_a_metric_is_not_documented() -> None:
    census = Census()
    census.looked("", 0.1, 1.0, [])
    made = {}
    for family in families(census.numbers()):
        (label, *more) = sorted({name for sample in family.samples for name in sample.labels}) or [""]
        name = f"{family.name}_total" if family.type == "counter" else family.name
        made[name] = (label, family.type)
        assert not more and family.documentation.endswith(".")
    assert made == documented()


def test_a_scraper_of_the_older_format_gets_nothing_it_knows() -> None:
    with metering(Census(), "0") as url:
        told = ask(url, accept="text/plain")
        assert told.kind.startswith("text/plain")
        names = {family.name for family in parse_older(told.text)}
        assert "satchel_runs" in names and "satchel_look_age_seconds" not in names, "no look was made"
        told = ask(url)
        assert told.kind.startswith("application/openmetrics-text") and told.samples["satchel_runs running"] == 0
        assert ask(url, "/readyz").status == 503


def test_a_stranger_reads_what_runs_cost() -> None:
    with metering(Census(), "0") as url:
        assert ask(url, host="evil.example").status == 421, "a site leads its name here"
        assert ask(url, origin="http://evil.example").status == 403
        assert ask(url, "/").status == 404
    with metering(Census(), "0", token=TOKEN) as url:
        assert ask(url).status == ask(url, authorization="Bearer no").status == 401
        assert ask(url, authorization=f"Bearer {TOKEN}").status == 200
        assert ask(url, "/healthz").status == 200, "an orchestrator has no token"
        assert ask(url, "/readyz").status == 503


@pytest.mark.parametrize(
    ("written", "token", "said"),
    [("0.0.0.0:0", "", "the metrics need a token"), ("0", "short", "fewer than 16"), ("here", "", "HOST:PORT")],
)
def test_it_serves_metrics_where_it_should_not(written: str, token: str, said: str) -> None:
    with pytest.raises(UsageError, match=said), metering(Census(), written, token=token):
        raise AssertionError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metrics", "0", "--once"], "--metrics waits for requests"),
        (["--metrics-token-file", os.devnull], "is for --metrics"),
        (["--metrics", "0", "--metrics-token-file", os.devnull], "there is no token"),
        (["--metrics", "0.0.0.0:0"], "--metrics-token-file or SATCHEL_METRICS_TOKEN"),
        (["--name", "runs.example.org"], "for --listen or --metrics"),
    ],
)
def test_a_command_that_makes_no_sense_serves_metrics(tmp_path: Path, words: list[str], said: str) -> None:
    result = CliRunner().invoke(group, ["serve", str(tmp_path), *words])
    assert result.exit_code == 2 and said in result.stderr


def test_the_page_shows_its_metrics_to_strangers(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/workspace.yaml").write_text("format: 1\nrun_id: letters-1\nagent: agent.py:main\n")
    census = Census(knows_due=False)
    site = Site(Overview(tmp_path, census=census), census)
    page = TestClient(make_app(site, Rules(token=TOKEN)), base_url="http://127.0.0.1")
    assert page.get("/metrics").status_code == 401
    assert page.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert page.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 401, "only for metrics"
    assert page.get("/healthz").status_code == 200
    site.runs(patience=None)
    assert page.get("/readyz").status_code == 200
    told = page.get("/metrics", headers=OPEN | {"authorization": f"Bearer {TOKEN}"})
    found = Reply(told.status_code, told.headers["content-type"], told.text).samples
    assert found["satchel_runs new"] == 1 and "satchel_runs_due" not in found
    assert page.get("/metrics", headers={"host": "evil.example"}).status_code == 421
