"""What a fleet refuses, and what it says of a cluster that can't have its runs. The cluster is in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import free_ports

from satchel import UsageError
from satchel.results import ServeEvent

distributed = pytest.importorskip("distributed", reason="Dask is not installed: `pip install --editable '.[test]'`")
from satchel.adapters.dask import Fleet, workers  # noqa: E402
from satchel.adapters.dask.workers import RootsSeen  # noqa: E402


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/workspace.yaml").write_text("format: 1\nrun_id: a-1\nagent: agent.py:main\n")
    return tmp_path


def refused(root: Path, answer: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """What is said by a fleet whose only worker answers so: the error, and the events."""
    events: list[ServeEvent] = []
    monkeypatch.setattr(workers, "look_around", answer)

    async def dispatch() -> str:
        async with distributed.LocalCluster(
            n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
        ) as cluster:
            with pytest.raises(UsageError) as raised:
                await Fleet(cluster.scheduler_address, root, tell=events.append).run()
            return str(raised.value)

    return asyncio.run(dispatch()), [f"{event.kind} {event.text}" for event in events]


def test_a_folder_that_only_this_machine_has_is_given_to_workers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = workers.version("satchel")
    error, events = refused(root, lambda roots: RootsSeen(ours, roots), monkeypatch)
    assert error.startswith("no worker can have a run: ") and f"it does not see {root}" in error
    assert any(event.startswith(f"refused it does not see {root}") for event in events)


def test_another_version_of_satchel_takes_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = refused(root, lambda roots: RootsSeen("0.0.1", []), monkeypatch)
    assert "it has Satchel 0.0.1, and this dispatcher" in error and "one version" not in error


def test_a_worker_without_satchel_is_not_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(roots: list[str]) -> Any:
        raise ModuleNotFoundError("No module named 'satchel'")

    error, _ = refused(root, missing, monkeypatch)
    assert "Satchel can't be used there (ModuleNotFoundError: No module named 'satchel')" in error


def test_a_scheduler_that_is_not_there_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER", 0.5)
    (port,) = free_ports(1)
    with pytest.raises(UsageError, match="the scheduler can't be reached"):
        asyncio.run(Fleet(f"tcp://127.0.0.1:{port}", root).run())
    with pytest.raises(UsageError, match="the scheduler can't be reached"):
        asyncio.run(Fleet("nonsense://", root).run())


def test_wrong_arguments_are_found_out_by_a_cluster(root: Path) -> None:
    for arguments in ({"roots": []}, {"roots": root, "at_most": 0}, {"roots": root, "drain_timeout": -1}):
        with pytest.raises(UsageError):
            Fleet("tcp://127.0.0.1:1", **arguments)
    with pytest.raises(UsageError, match="client"):
        Fleet(5, root)  # type: ignore[arg-type]
