"""What `status` and `ls` ask a bucket for, and that nothing is overlooked for it."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import Server

import satchel
from satchel import Item, Run, agent, step
from satchel.runtime.status.overview import Overview
from satchel.workspace.inspect import lease
from satchel.workspace.store import AT_ONCE, open_store
from satchel.workspace.store.s3 import Requests
from satchel.workspace.views import schema_files

from .conftest import Cli, data_of

DEFINITION = b"format: 1\nrun_id: nap-1\nagent: agent.py:main\n"


@step
async def add(one: int, other: int) -> int:
    return one + other


async def work(run: Run[dict[str, Any]], item: Item) -> None:
    run.state[item.text] = [await add(number, 1) for number in range(5)]
    if item.text == "b":
        match run.state["end"]:
            case "sleeping":
                await run.sleep(30 * 86400)
            case "waiting":
                await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
            case "paused":
                await run.pause("a look")
            case "failed":
                raise KeyError("b")


def ending(how: str) -> satchel.Agent:
    async def begin(run: Run[dict[str, Any]]) -> None:
        run.state["end"] = how

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.scope("begin", begin, run)
            await run.plan("Nap", ["a", "b"])
        await run.todo.each(work)

    return main


OWN = [".satchel/schemas/data.json", schema_files.result_path(schema_files.result_schema({"type": "integer"}).name)]
"""Of the agent's state, and of the result of `add`."""


def schemas_in(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if "schemas" in path)


class Bucket:
    """In which a run has stopped."""

    def __init__(self, server: Server, how: str = "sleeping", main: satchel.Agent | None = None):
        self.server, self.url = server, server.place()
        self.name, _, self.prefix = self.url.removeprefix("s3://").partition("/")
        self.put("workspace.yaml", DEFINITION)
        assert satchel.run(self.url, main or ending(how)).status == how

    def put(self, path: str, data: bytes) -> None:
        self.server.client.put_object(Bucket=self.name, Key=f"{self.prefix}/{path}", Body=data)

    def get(self, path: str) -> bytes:
        found: bytes = self.server.client.get_object(Bucket=self.name, Key=f"{self.prefix}/{path}")["Body"].read()
        return found

    @property
    def paths(self) -> list[str]:
        listed = self.server.client.list_objects_v2(Bucket=self.name, Prefix=f"{self.prefix}/")["Contents"]
        return [each["Key"].removeprefix(f"{self.prefix}/") for each in listed]


@pytest.fixture
def s3(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    return seaweedfs


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, keys: list[str] | None = None) -> Iterator[Counter[str]]:
    """Requests of this process while the body runs, by method; the keys of objects that it asks for go into `keys`."""
    asked: Counter[str] = Counter()
    answer = Requests._answer

    async def counted(self: Requests, method: str, arguments: Any, *more: Any) -> Any:
        asked[method] += 1
        if keys is not None and "Key" in arguments:
            keys.append(arguments["Key"])
        return await answer(self, method, arguments, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Requests, "_answer", counted)
        yield asked


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("how", ["sleeping", "waiting", "paused", "failed", "completed"])
def test_status_asks_more_than_four_times(s3: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    bucket = Bucket(s3, how)
    with counting(monkeypatch) as asked:
        said = cli("status", bucket.url)
    assert f"state     {how}" in said.stdout and asked["list_objects_v2"] == 1, (said.output, asked)
    # Of a failed run also its last records, for the call that it has failed at
    assert asked.total() <= (6 if how == "failed" else 4), asked


def test_a_run_without_a_plan_is_asked_for_its_plan(s3: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing shows that there is none."""

    @agent
    async def main(run: Run[dict[str, Any]]) -> str:
        return "x" * 100_000  # a result in a file of its own

    bucket = Bucket(s3, "completed", main)
    for command, most in (("status", 4), ("ls", 2)):
        keys: list[str] = []
        with counting(monkeypatch, keys) as asked:
            said = cli(command, bucket.url).stdout
        assert "completed" in said and asked.total() <= most, (said, asked)
        assert {key.removeprefix(f"{bucket.prefix}/") for key in keys} <= {*bucket.paths}, keys


def test_the_outputs_of_a_run_that_was_moved_here_are_fetched_to_compare_them(
    s3: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a disk it has written other versions; but the listing of a bucket shows hashes."""

    async def wrote(run: Run[dict[str, Any]]) -> None:
        for number in range(5):
            await run.output(f"{number}.txt", "x" * number)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.scope("wrote", wrote, run)

    (tmp_path / "workspace.yaml").write_bytes(DEFINITION)
    assert satchel.run(tmp_path, main).status == "completed"
    url = s3.place()
    satchel.open(tmp_path).move(url)
    keys: list[str] = []
    with counting(monkeypatch, keys):
        said = cli("status", url).stdout
    assert "completed" in said and "is not what" not in said
    assert not [key for key in keys if "/outputs/" in key], keys
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    s3.client.put_object(Bucket=bucket, Key=f"{prefix}/outputs/3.txt", Body=b"abc")
    assert "outputs/3.txt is not what the run made" in cli("status", url).stdout


def test_an_active_run_is_asked_for_files_that_nothing_is_read_from(
    s3: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its steps, and the plan that it does not have."""

    async def paused(run: Run[dict[str, Any]]) -> None:
        await add(1, 2)
        await run.pause("a look")

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.scope("paused", paused, run)

    bucket = Bucket(s3, "paused", main)
    assert [path for path in bucket.paths if path.startswith("steps/")]
    held = lease.mine(open_store(bucket.url), "nap-1", epoch=1000, ttl=600.0)  # as of the next owner
    bucket.put(lease.PATH, lease.encode(held))
    for command in ("status", "ls"):
        keys: list[str] = []
        with counting(monkeypatch, keys):
            said = cli(command, bucket.url).stdout
        asked = {key.removeprefix(f"{bucket.prefix}/") for key in keys}
        assert "draining" in said or "running" in said, said
        assert not [path for path in asked if path.startswith("steps/")] and asked <= {*bucket.paths}, asked


def test_ls_asks_one_after_the_other_or_for_what_it_knows(
    s3: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One listing, and the checkpoint of each run; as many at a time as may be."""
    bucket = Bucket(s3)
    paths = bucket.paths
    checkpoints = (path for path in paths if re.fullmatch(r"checkpoints/[^/]*\.json", path))
    needed = ["workspace.yaml", max(checkpoints), max(path for path in paths if "journal/" in path)]
    bodies = {path: bucket.get(path) for path in needed}
    runs = AT_ONCE + 8
    for number in range(runs):
        for path, data in bodies.items():
            bucket.put(f"all/{number}/{path}", data)
    changed, under_way, most = threading.Condition(), 0, 0
    fetch = Requests.fetch

    def fetched(self: Requests, *arguments: Any, **more: Any) -> Any:
        """Nobody gets an answer before so many ask that no more may."""
        nonlocal under_way, most
        with changed:
            under_way += 1
            most = max(most, under_way)
            changed.notify_all()
            assert changed.wait_for(lambda: most >= AT_ONCE, 60), f"only {most} at a time"
        found = fetch(self, *arguments, **more)
        with changed:
            under_way -= 1
        return found

    monkeypatch.setattr(Requests, "fetch", fetched)
    with counting(monkeypatch) as asked:
        told = data_of(cli("ls", "--json", f"{bucket.url}/all"))
    assert [each["state"] for each in told] == ["sleeping"] * runs
    assert most == AT_ONCE and asked == {"list_objects_v2": 1, "get_object": runs}


def test_each_of_many_interrupted_runs_is_listed_again(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an outage. A look that says so is doubtful; one new listing is for all."""
    before: dict[str, bytes] = {}

    async def look(run: Run[dict[str, Any]]) -> None:
        await add(1, 2)
        before.update({path: bucket.get(path) for path in bucket.paths if path != lease.PATH})

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.scope("look", look, run)

    bucket = Bucket(s3, "sleeping")
    bucket.url, bucket.prefix = f"{bucket.url}/one", f"{bucket.prefix}/one"
    bucket.put("workspace.yaml", DEFINITION)
    assert satchel.run(bucket.url, main).status == "completed"
    for number in range(5):
        for path, data in before.items():
            bucket.put(f"all/{number}/{path}", data)
    for look_at_all in (satchel.ls, lambda url: [run.status for run in Overview(url).look().runs]):
        with counting(monkeypatch) as asked:
            found = look_at_all(f"{bucket.url}/all")
        assert [each.state for each in found] == ["interrupted"] * 5 and asked["list_objects_v2"] <= 3, asked


def test_what_has_changed_since_the_stop_is_taken_for_what_the_checkpoint_says(s3: Server, cli: Cli) -> None:
    bucket = Bucket(s3)
    bucket.put("workspace.yaml", DEFINITION + b"settings: {model: small}\nbudget: {steps: 10}\n")
    step_file = next(path for path in bucket.paths if path.startswith("steps/"))
    bucket.put(step_file, bucket.get(step_file).replace(b'"result": ', b'"result": 7'))
    bucket.put("inbox/new.md", b"Do this, too\n")
    said = cli("status", bucket.url).stdout
    assert "10 of 10 steps" in said and "settings" in said, said
    assert "now counts as having returned 7" in said and "1 waiting" in said, said
    bucket.put("workspace.yaml", b"a: b: c\n")
    assert "damaged" in cli("ls", bucket.url).stdout
    bucket.put("workspace.yaml", DEFINITION)
    assert "sleeping" in cli("ls", bucket.url).stdout
    newest = max(path for path in bucket.paths if path.startswith("journal/"))
    bucket.put(newest, bucket.get(newest).replace(b'"sleeping"', b'"completed"'))
    assert "torn tail" in cli("status", bucket.url).stdout, "the segment is not the one that was written"


def test_a_record_behind_the_last_checkpoint_is_overlooked(s3: Server, cli: Cli) -> None:
    """A person's answer, say: the process that records it has no need of a checkpoint."""
    bucket = Bucket(s3, "waiting")
    assert cli("answer", bucket.url, "yes").exit_code == 0
    newest = max(path for path in bucket.paths if re.fullmatch(r"checkpoints/[^/]*\.json", path))
    s3.client.delete_object(Bucket=bucket.name, Key=f"{bucket.prefix}/{newest}")
    assert data_of(cli("status", "--json", bucket.url))["questions"] == []


@pytest.mark.slow
def test_a_move_brings_copies_of_schemas_into_a_bucket(s3: Server, tmp_path: Path) -> None:
    """They would stay in every listing until a sleeping run wakes."""
    (tmp_path / "workspace.yaml").write_bytes(DEFINITION)
    assert satchel.run(tmp_path, ending("sleeping")).status == "sleeping"
    copied = {path.name for path in (tmp_path / ".satchel/schemas").iterdir()}
    assert len(copied) > 10 and "data.json" in copied
    for carry in ("copy", "move"):
        url = s3.place()
        name, _, prefix = url.removeprefix("s3://").partition("/")
        assert not getattr(satchel.open(tmp_path), carry)(url).left
        listed = [each["Key"] for each in s3.client.list_objects_v2(Bucket=name, Prefix=f"{prefix}/")["Contents"]]
        assert schemas_in([key.removeprefix(f"{prefix}/") for key in listed]) == OWN
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"moved.yaml", "lock"}
    assert satchel.open(url).check().ok and satchel.run(url, ending("sleeping"), wake=True).status == "sleeping"


@pytest.mark.slow
def test_copies_of_schemas_lie_in_a_bucket(s3: Server, cli: Cli) -> None:
    """Each would be an object that every listing tells of. Those that came with a copy go at the next opening."""
    bucket = Bucket(s3)
    assert schemas_in(bucket.paths) == OWN
    bucket.put(".satchel/schemas/state.json", b"{}")
    assert satchel.run(bucket.url, ending("sleeping"), wake=True).status == "sleeping"
    assert schemas_in(bucket.paths) == OWN
