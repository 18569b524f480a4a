"""A handle on a workspace in a bucket, with a real server: the same methods, the same results."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import fsspec
import pytest
from servers import SECRET, Server

import satchel
from satchel import Item, Run, agent, step
from satchel.runtime import api
from satchel.workspace.base.errors import Refused, SatchelError, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import blobs
from satchel.workspace.store.s3 import Requests

from .test_answering import GRANTING
from .test_any_moment import replayed, wandering
from .test_withdrawing import Gated


def put(server: Server, url: str, text: str) -> None:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    server.client.put_object(Bucket=bucket, Key=key, Body=text.encode())


@pytest.fixture
def handle(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> api.Handle:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = seaweedfs.place()
    put(seaweedfs, f"{root}/demo/workspace.yaml", "format: 1\nrun_id: demo-1a2b\nagent: agent.py:main\n")
    put(seaweedfs, f"{root}/demo/agent.py", GRANTING)
    (found,) = satchel.open_all(root)
    assert found.url == f"{root}/demo"
    return satchel.open(f"{root}/demo/")


@pytest.mark.slow
def test_a_run_in_a_bucket_can_not_be_controlled(handle: api.Handle) -> None:
    assert handle.run().status == "waiting"
    assert handle.answer("deny", by="ada").is_recorded and not handle.questions()
    assert handle.pause(reason="a look").status == "paused"
    assert handle.run().status == "paused"
    assert handle.resume().status == "waiting"
    assert handle.send("Write to Ada")[0].file.startswith("inbox/")
    assert handle.recover().status == "waiting" and handle.holder() == ""
    assert handle.merge().conflicts == ()
    with pytest.raises(Refused, match="can't be cut off in a bucket"):
        handle.plan_cut(5)
    assert handle.stop(reason="enough").how == "idle"
    assert handle.cancel().status in ("paused", "cancelled")


@pytest.mark.slow
def test_the_log_of_a_run_in_a_bucket_stays_on_the_worker(
    seaweedfs: Server, handle: api.Handle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of all workers that have had it are in the bucket."""
    bucket, _, key = handle.url.removeprefix("s3://").partition("/")
    for number in range(2):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"machine{number}"))
        assert handle.supervise(should_stop=lambda: False).status == "waiting"
    log = seaweedfs.client.get_object(Bucket=bucket, Key=f"{key}/.satchel/run.log")["Body"].read().decode()
    assert log.count("waiting") >= 2 and not handle.check().problems


@pytest.mark.slow
def test_a_pause_in_a_bucket_can_not_be_taken_back(handle: api.Handle) -> None:
    gated = Gated()
    with gated.going(handle) as ended:
        handle.pause(reason="lunch")
        done = handle.withdraw()
        assert done.status == "withdrawn" and done.said.endswith(" continues"), done
        assert handle.status().state == "running" and not gated.gates["a"].is_set()
    assert ended[0].status == "completed"
    (requested,), (resumed,) = handle.history.log(type="pause.requested"), handle.history.log(type="resumed")
    assert requested.record["reason"] == "lunch" and resumed.record["by"]


@pytest.mark.slow
def test_a_moment_in_a_bucket_is_not_what_the_records_add_up_to(handle: api.Handle) -> None:
    main = wandering(random.Random(3))
    handle.run(main)
    middle = handle.history.show().seq
    handle.history.rewind(to="^2")
    handle.resume(main)
    rows = [row.record for row in handle.history.log()]
    assert [row["seq"] for row in rows] == [*range(1, len(rows) + 1)], "the log repeats what segments repeat"
    assert len(rows) > middle > 10
    for seq in range(1, len(rows) + 1, 3):
        assert {each.path: (each.data, each.plan) for each in handle.history.show(seq).agents} == replayed(rows, seq)
    assert handle.history.diff(1).new.seq == len(rows) == handle.history.steps().moment.seq
    assert handle.history.steps("1").work[0].calls[0].step == "roll"
    with pytest.raises(UsageError, match="the newest is record"):
        handle.history.show(len(rows) + 1)


@pytest.mark.slow
def test_a_run_in_a_bucket_can_not_go_back(handle: api.Handle, tmp_path: Path) -> None:
    assert handle.run().status == "waiting"
    assert handle.answer("approve", by="ada").is_recorded and handle.resume().status == "waiting"
    assert handle.answer(250, by="ada").is_recorded and handle.resume().status == "completed"
    there = satchel.open(handle.history.fork(f"{handle.url}-2", at="^1", run_id="second").to)
    here = satchel.open(there.history.fork(tmp_path / "third", run_id="third").to)
    replayed_there = handle.history.replay("^1", f"{handle.url}-4", run_id="fourth")
    assert replayed_there.end == "done" and replayed_there.is_same, "people have answered these questions"
    for each, name in ((there, "second"), (here, "third"), (satchel.open(replayed_there.to), "fourth")):
        status = each.status()
        assert status.moment and status.moment.run_id == name and each.check().ok, each.check().problems
        assert each.resume().status == "completed" and answers(each) == answers(handle)
    assert handle.history.rewind(to="^1").is_done and answers(handle) == {} and handle.check().ok
    assert handle.resume().status == "completed" and answers(handle) == {"Grant?": "approve", "How much?": 250}
    assert handle.history.redo("^1").title and handle.resume().status == "completed" and handle.check().ok


def test_the_status_after_a_run_is_that_before_it(handle: api.Handle) -> None:
    other = satchel.open(handle.url)
    assert handle.status().state == other.status().state == "new"
    assert handle.run().status == "waiting"
    assert handle.status().state == other.status().state == "waiting"
    other.pause(reason="a look")
    assert handle.status().state == "paused"
    assert other.resume().status == "waiting"
    assert other.status().state == handle.status().state == "waiting"


def answers(handle: api.Handle) -> object:
    return look(handle.store).moment.root.data


def test_storage_options_are_shown_or_do_not_count(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in seaweedfs.environment():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FSSPEC_S3", "{}")
    monkeypatch.setitem(fsspec.config.conf, "s3", {})
    url, options = seaweedfs.place(), seaweedfs.storage_options()
    put(seaweedfs, f"{url}/workspace.yaml", "format: 1\nrun_id: demo-1a2b\nagent: agent.py:main\n")
    assert satchel.open(url, storage_options=options).questions() == []
    assert SECRET in os.environ["FSSPEC_S3"]
    with pytest.raises(SatchelError, match="are only for URLs") as raised:
        satchel.open(Path(), storage_options=options)
    assert SECRET not in str(raised.value)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_fork_in_a_bucket_sends_large_results_through_this_machine(
    handle: api.Handle, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    @step
    async def think(text: str) -> str:
        return text * 40_000

    async def work(run: Run[Any], item: Item) -> int:
        return len(await think(item.text))

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ab"])
        await run.todo.each(work)

    assert handle.run(main).status == "completed"
    (seq,) = (row.line.seq for row in handle.history.log(type="step.completed"))
    sent: list[str] = []
    answer = Requests._answer

    async def noted(self: Requests, method: str, arguments: Any, seconds: float) -> Any:
        if blobs.BLOBS in arguments.get("Key", ""):
            sent.append(method)
            if method == "copy_object" and not is_allowed:
                arguments = arguments | {"CopySource": {"Bucket": "no-such-bucket", "Key": "x"}}
        return await answer(self, method, arguments, seconds)

    monkeypatch.setattr(Requests, "_answer", noted)
    there = satchel.open(handle.history.fork(f"{handle.url}-3", at=seq).to)
    assert sent == ["copy_object"] if is_allowed else (sent[0], sent[-1]) == ("copy_object", "put_object")
    assert there.resume(main).status == "completed" and there.check().ok
    (work_done,) = there.history.steps("1").work
    assert work_done.calls[0].result_in and work_done.state == "committed"
