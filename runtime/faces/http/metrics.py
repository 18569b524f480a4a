"""Metrics of runs for Prometheus, and what tells an orchestrator whether this process works.

`GET /metrics`   the numbers of a census, in OpenMetrics or in the older text format, as the request prefers
`GET /healthz`   this process answers
`GET /readyz`    its last look at the runs is younger than three periods

No metric names a run: there may be 100,000, and each would be a time series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ....workspace.base import UsageError
from ....workspace.state import STATES
from ...supervision import Census, CensusNumbers
from .access import Senders, address_of, answering, given_token, handlers, healthy, tokens_of

METRICS, HEALTHY, READY = "/metrics", "/healthz", "/readyz"

_TOKEN = "SATCHEL_METRICS_TOKEN"

_COUNTERS = {
    "starts": ("satchel_starts", "Processes, or tasks of one, that have begun to work on a run."),
    "crashes": ("satchel_crashes", "Processes that have died of what an agent did."),
    "takeovers": ("satchel_takeovers", "Starts of a run that another process had left without closing it."),
    "steps": ("satchel_steps", "Calls of steps and effects that have returned."),
    "retries": ("satchel_retries", "Calls that had failed and were tried again."),
    "tokens": ("satchel_tokens", "Tokens that agents have reported."),
    "usd": ("satchel_cost_usd", "Costs that agents have reported, in US dollars."),
}


def families(numbers: CensusNumbers) -> Iterator[Metric]:
    """All metrics."""
    runs = GaugeMetricFamily("satchel_runs", "Runs below the root.", labels=["state"])
    for state in STATES:
        runs.add_metric([state], numbers.states[state])
    yield runs
    if numbers.due is not None:
        yield GaugeMetricFamily("satchel_runs_due", "Runs that could work and wait for a free place.", numbers.due)
        yield GaugeMetricFamily(
            "satchel_runs_due_oldest_seconds", "How long the first of these has waited.", numbers.due_age
        )
    yield GaugeMetricFamily(
        "satchel_lease_oldest_seconds", "How long the process that has had a run for longest has it.", numbers.lease_age
    )
    yield GaugeMetricFamily("satchel_questions_open", "Questions that wait for a person.", numbers.questions)
    yield GaugeMetricFamily(
        "satchel_questions_oldest_seconds", "How long the oldest of these has waited.", numbers.question_age
    )
    for name, (called, text) in _COUNTERS.items():
        yield CounterMetricFamily(called, text, numbers.counts[name])
    yield SummaryMetricFamily(
        "satchel_look_seconds", "Looks at all runs, and the time that they took.", numbers.looks, numbers.look_seconds
    )
    if numbers.look_age is not None:
        yield GaugeMetricFamily(
            "satchel_look_age_seconds", "Time since the last look at all runs has ended.", numbers.look_age
        )


class _Collector:
    def __init__(self, census: Census):
        self._census = census

    def collect(self) -> Iterable[Metric]:
        return families(self._census.numbers())


def metric_routes(census: Census, before: Callable[[], object], senders: Senders | None = None) -> list[BaseRoute]:
    """The routes of the three paths. `before` is called in a thread before the census is read, and takes about a
    second at most. `senders` may see the metrics; None: that was checked before."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(census))

    async def metrics(request: Request) -> Response:
        if senders is not None:
            await senders.check(request)
        await run_in_threadpool(before)
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": kind})

    async def ready(request: Request) -> Response:
        await run_in_threadpool(before)
        is_ready = census.is_ready
        return JSONResponse({"status": "ok" if is_ready else "no look was made lately"}, 200 if is_ready else 503)

    every = {METRICS: metrics, HEALTHY: healthy, READY: ready}
    return [Route(path, answer, methods=["GET"]) for path, answer in every.items()]


@contextmanager
def metering(census: Census, written: str, *, token: str = "", names: Sequence[str] = ()) -> Iterator[str]:
    """Serve the metrics of `census` at an address while the body runs. Gives the URL. If it fails meanwhile, this
    process gets SIGTERM, so that the body ends, and the error is raised then.

    UsageError for an address that is wrong or taken, and for one that others can reach without a `token`. The two
    probes tell nothing of the runs, and need none.
    """
    wanted, tokens = address_of(written), tokens_of(token)
    if not tokens and not wanted.is_local:
        raise UsageError(
            f"on {wanted.host} the metrics need a token",
            why="other machines reach them there, and they say what runs cost",
            remedy=f"give it with --metrics-token-file or {_TOKEN}, or listen on 127.0.0.1 or a unix socket",
        )
    app = Starlette(
        routes=metric_routes(census, census.refresh, Senders.at(wanted, tokens, names)),
        exception_handlers=handlers(f"the metrics are at {METRICS}"),
    )
    with answering(app, wanted, written) as url:
        yield f"{url}{METRICS}"


def metering_of_options(
    census: Census, written: str, *, token_file: BinaryIO | None, names: Sequence[str]
) -> AbstractContextManager[str]:
    """`metering` as the options of a command ask for it. The token: of `token_file`, or SATCHEL_METRICS_TOKEN."""
    return metering(census, written, token=given_token(_TOKEN, token_file), names=names)
