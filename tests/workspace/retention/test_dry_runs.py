"""`satchel prune --dry-run` names what `satchel prune` removes, and nothing else."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from servers import Server

import satchel
from satchel.runtime.api import Handle
from satchel.workspace.journal import segment_log
from satchel.workspace.lifecycle import retention, workspace
from satchel.workspace.state import checkpoint

from .test_pruning import _little_is_much, main, plan_of, ran, ruled

__all__ = ["_little_is_much"]


def files_of(folder: Path) -> set[str]:
    """The files that retention is about. Those of a checkpoint's folder go with it."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    below = ("journal/", "checkpoints/", "inbox/done/", ".satchel/blobs/", "recovered/")
    return {path for path in found if path.startswith(below) and path.count("/") < 2 + path.startswith((".", "inbox"))}


def lived(folder: Path, rng: random.Random) -> Handle:
    """A run that has completed, and was opened again some times."""
    plan = [text + " large" * rng.choice([0, 0, 1]) for text in plan_of(rng.randint(1, 30))]
    handle = satchel.open(ran(folder, plan).url)
    for number in range(rng.randint(0, 6)):
        if rng.random() < 0.5:
            handle.recover()
        else:
            handle.send(f"task {number}")
            handle.run(main)
    known = checkpoint.paths(handle.store)
    for path in known[: rng.randint(0, len(known))]:
        os.utime(folder / path, (0, 0))
    return handle


def rules(rng: random.Random) -> str:
    history, inbox = rng.choice(["all", "1", "30", "1h", "[20, 1h]"]), rng.choice([1, 2, 9])
    return f"{{history: {history}, checkpoints: {rng.choice(['all', '1', '2', '5', '[2, 1h]'])}, inbox: {inbox}}}"


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("seed", range(24))
def test_a_dry_run_names_other_files_than_those_that_go(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    handle = lived(tmp_path / "run", rng)
    said = rules(rng)
    ruled(handle.store, said)
    planned = handle.prune(dry_run=True)
    before = files_of(tmp_path / "run")
    done = handle.prune()
    left = files_of(tmp_path / "run")
    assert (sorted(done.paths), done.files, done.bytes) == (sorted(planned.paths), planned.files, planned.bytes), said
    assert done.kept_from == planned.kept_from
    gone = before - left
    assert {path for path in gone if "journal/" not in path} == {path for path in done.paths if "journal/" not in path}
    assert {*done.paths} <= gone and handle.check().ok, (seed, said)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_dry_run_in_a_bucket_names_other_objects_than_those_that_go(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It takes no fence, so it must not promise what only an owner may remove."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    for module, name, value in (
        (segment_log, "REPEATED_BYTES", 900),
        (segment_log, "ROLLED_BYTES", 4000),
        (workspace, "FETCHED_BYTES", 3000),
        (retention, "ENOUGH_FETCHED", 3000),
    ):
        monkeypatch.setattr(module, name, value)
    rng = random.Random(seed)
    url = seaweedfs.place()
    bucket, _, key = url.removeprefix("s3://").partition("/")
    plan = ["one large", *plan_of(rng.randint(1, 12))]

    def define(keep: str) -> None:
        text = f"format: 1\nrun_id: r-1\nagent: agent.py:main\nsettings: {json.dumps({'plan': plan})}\nkeep: {keep}\n"
        seaweedfs.client.put_object(Bucket=bucket, Key=f"{key}/workspace.yaml", Body=text.encode())

    def there() -> set[str]:
        found = seaweedfs.client.list_objects_v2(Bucket=bucket, Prefix=f"{key}/")["Contents"]
        return {each["Key"].removeprefix(f"{key}/") for each in found}

    define("{history: all, checkpoints: all}")
    assert satchel.run(url, main).status == "completed"
    for number in range(rng.randint(1, 4)):
        satchel.open(url).send(f"task {number}")
        satchel.run(url, main)
    define(f"{{history: {rng.choice([1, 20])}, checkpoints: {rng.choice([1, 2])}, inbox: 1}}")
    planned = satchel.open(url).prune(dry_run=True)
    before = there()
    done = satchel.open(url).prune()
    gone = before - there()
    assert planned.paths, "the test is about these"
    assert (sorted(done.paths), done.files, done.bytes) == (sorted(planned.paths), planned.files, planned.bytes)
    assert done.kept_from == planned.kept_from and {*done.paths} <= gone
    others = {path for path in gone - {*done.paths} if not path.startswith("journal/kept-")}
    assert all(path.startswith("checkpoints/") and path.count("/") > 1 for path in others), others
    assert satchel.open(url).check().ok
