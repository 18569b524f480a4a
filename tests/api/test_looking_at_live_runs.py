"""What `status` and `ls` say of a run in a bucket whose process writes between two of their requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError
from servers import Server

import satchel
from satchel import Run, agent, step
from satchel.workspace.store.s3 import Requests

Objects = dict[str, bytes]


class Bucket:
    def __init__(self, server: Server):
        self._client, self.root = server.client, server.place()
        self._bucket, _, self._prefix = self.root.removeprefix("s3://").partition("/")
        self.url = f"{self.root}/a"

    def objects(self) -> Objects:
        """All of one moment, also while a run writes them."""
        while True:
            listed = self._listed()
            with suppress(ClientError):  # it was removed meanwhile
                found = {key: self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read() for key in listed}
                if self._listed() == listed:
                    return found

    def _listed(self) -> dict[str, str]:
        listed = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}/a/")
        return {each["Key"]: each["ETag"] for each in listed.get("Contents", ())}

    def lay(self, objects: Objects) -> None:
        """From now on these are all that there are of the run."""
        for key in self._listed().keys() - objects.keys():
            self._client.delete_object(Bucket=self._bucket, Key=key)
        for key, data in objects.items():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def put(self, path: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}/a/{path}", Body=data)

    @contextmanager
    def turning(self, to: Objects, after: int) -> Iterator[list[str]]:
        """After so many requests the objects are these. Yields the requests."""
        asked: list[str] = []
        answer = Requests._answer

        async def turned(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
            if len(asked) == after:
                self.lay(to)
            asked.append(f"{method} {arguments.get('Key', '')}")
            return await answer(requests, method, arguments, seconds)

        with mock.patch.object(Requests, "_answer", turned):
            yield asked


@pytest.fixture
def bucket(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(seaweedfs)
    bucket.put("workspace.yaml", b"format: 1\nrun_id: a-1\nagent: agent.py:main\n")
    return bucket


@step
async def number(value: int) -> int:
    return value


def moments(bucket: Bucket) -> tuple[Objects, Objects]:
    """The objects while a run runs, and when it has failed: segments are gone, and so is the lease."""
    while_it_runs: Objects = {}

    @agent
    async def main(run: Run[Any]) -> None:
        for value in range(12):
            await number(value)
            while_it_runs.update(bucket.objects() if value == 6 else {})
        raise ValueError("a person has to look")

    assert satchel.run(bucket.url, main).status == "failed"
    return while_it_runs, bucket.objects()


def test_a_run_that_another_process_begins_during_a_listing_has_lost_its_journal(bucket: Bucket) -> None:
    """A listing takes time, so it may show what was written late, and not what was written first."""

    @agent
    async def main(run: Run[Any]) -> None:
        await number(1)

    _, begun = moments(bucket)
    late = {key: data for key, data in begun.items() if key.endswith(("workspace.yaml", "state.json", "todo.md"))}
    for after in range(1, 4):
        for does in (lambda: satchel.open(bucket.url).status(), lambda: satchel.ls(bucket.root)[0]):
            bucket.lay(late)
            with bucket.turning(begun, after) as asked:
                found = does()
            if len(asked) > after:  # else it was over before
                assert found.state == "failed" and not found.complaints and not found.begun, found.complaints
        bucket.lay(late)
        with bucket.turning(begun, after):
            assert satchel.run(bucket.url, main).status in ("failed", "completed")


def test_a_run_that_ends_during_a_look_is_said_to_be_damaged_or_interrupted(bucket: Bucket) -> None:
    before, after = moments(bucket)
    assert {key for key in before if "/journal/" in key} - after.keys(), "segments were rolled up"
    for brief in (False, True):
        most = requests = 1
        while requests <= most:
            bucket.lay(before)
            with bucket.turning(after, requests) as asked:
                (found,) = satchel.ls(bucket.root) if brief else [satchel.open(bucket.url).status()]
            assert found.state in ("running", "failed"), (found.state, found.problem, asked)
            most, requests = len(asked), requests + (1 if brief else 3)
        assert most > 3
