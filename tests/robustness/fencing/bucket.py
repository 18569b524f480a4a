"""A bucket in memory that does everything S3 may do, and the real `BucketStore` over it.

Every request comes to a point of the schedule on its way there and on its way back. Its answer may be lost, so may be
the request itself, which then may arrive much later; a listing has pages, and of several objects to remove some go
sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.store import bucket
from satchel.workspace.store.bucket import BucketStore
from satchel.workspace.store.remote_store import md5_tag
from satchel.workspace.store.s3 import Body, NoSuchObject, Patience, Requests, Unanswered, Unmet

from .scheduler import Killed, Process, SimulatedLock, Simulation

_PAGE = 4
_TRIES = 3
_LATE = 300.0
_WRITES = ("put_object", "delete_object", "delete_objects")


class Bucket:
    """The objects. Each operation is atomic, as S3's are."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, bytes, str]] = {}  # by key: tag, data, nonce

    def put(self, key: str, data: bytes, nonce: str, match: str | None, none_match: str | None) -> str:
        old = self.objects.get(key)
        if none_match is not None and old is not None:
            raise Unmet
        if match is not None and old is None:
            raise NoSuchObject
        if match is not None and old is not None and old[0] != match:
            raise Unmet
        tag = md5_tag(data)
        self.objects[key] = tag, data, nonce
        return tag

    def delete(self, key: str, match: str | None) -> None:
        old = self.objects.get(key)
        if match is not None and (old is None or old[0] != match):
            raise Unmet
        self.objects.pop(key, None)

    def copy(self) -> dict[str, bytes]:
        return {key: data for key, (_, data, _) in self.objects.items()}


class Faults:
    """How likely what is, in one schedule."""

    def __init__(self, simulation: Simulation):
        choose = simulation.random.choice
        self.stall = choose((0.0, 0.01, 0.04))
        self.seconds = choose((50.0, 200.0))  # it stalls for about so long: a time-to-live is shorter
        self.kill = choose((0.0, 0.0, 0.004, 0.015))
        self.lose = choose((0.0, 0.03, 0.12))
        self.page = choose((0.0, 0.2))


class SimulatedPatience(Patience):
    def __init__(self, simulation: Simulation):
        self._simulation = simulation
        self._left = _TRIES

    def wait(self, trouble: Unanswered, what: str, path: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise StorageFailed(what, path=path, why=trouble.why)
        self._simulation.sleep(0.5)


class SimulatedRequests(Requests):
    """`call`, which tries again, is the real one."""

    def __init__(self, simulation: Simulation, objects: Bucket, faults: Faults | None):
        self.place = "s3://b"
        self._simulation, self._objects, self._faults = simulation, objects, faults

    @property
    def server(self) -> str:
        return "the model"

    def patience(self) -> Patience:
        return SimulatedPatience(self._simulation)

    def once(self, method: str, what: str, path: str, **arguments: Any) -> Mapping[str, Any]:
        try:
            self._go(f"{method} {arguments.get('Key', '')}")
        except Killed:
            if method in _WRITES and self._simulation.chance(0.3):
                self._arrive_late(method, arguments)
            raise
        faults = self._faults
        is_lost = faults is not None and method != "list_objects_v2" and self._simulation.chance(faults.lose)
        if is_lost and self._simulation.chance(0.5):
            if method in _WRITES and self._simulation.chance(0.7):
                self._arrive_late(method, arguments)
            self._simulation.note(f"lost the request: {method} {arguments.get('Key', '')}")
            raise Unanswered("the request was lost")
        try:
            answer: Mapping[str, Any] = getattr(self, f"_{method}")(**arguments)
        except (Unmet, NoSuchObject) as refused:
            self._simulation.note(f"{method} {arguments.get('Key', '')}: {type(refused).__name__}")
            raise
        if method != "list_objects_v2":
            self._simulation.note(f"{method} {arguments.get('Key', '')}")
        self._simulation.point()
        if is_lost:
            self._simulation.note(f"lost the answer: {method}")
            raise Unanswered("the answer was lost")
        return answer

    def fetch(self, what: str, path: str, limit: int, patience: Patience | None = None, **arguments: Any) -> Body:
        self._go(f"get {path}")
        found = self._objects.objects.get(arguments["Key"])
        self._simulation.point()
        if found is None:
            raise NoSuchObject
        tag, data, nonce = found
        return Body(data, len(data), {"ETag": tag, "Metadata": {"satchel-write": nonce}})

    def _go(self, what: str) -> None:
        """On the way there: it may take long, and the process may be killed."""
        simulation, faults = self._simulation, self._faults
        if faults is not None:
            if simulation.chance(faults.kill) and (process := simulation.process) is not None:
                simulation.note(f"killed before {what}")
                process.is_dead = True
                raise Killed
            if simulation.chance(faults.stall):
                simulation.note(f"stalls before {what}")
                simulation.sleep(faults.seconds * (0.5 + simulation.random.random()))
        simulation.point()

    def _arrive_late(self, method: str, arguments: Mapping[str, Any]) -> None:
        """A request that its sender has given up may still be on its way."""
        simulation = self._simulation

        def arrive() -> None:
            simulation.sleep(_LATE * simulation.random.random() ** 3)
            try:
                getattr(self, f"_{method}")(**arguments)
            except (Unmet, NoSuchObject):
                return
            simulation.note(f"arrives late: {method} {arguments.get('Key', '')}")

        simulation.begin(Process("network"), "network", arrive)

    def _put_object(
        self,
        *,
        Key: str,
        Body: bytes,
        Metadata: Mapping[str, str] | None = None,
        IfMatch: str | None = None,
        IfNoneMatch: str | None = None,
    ) -> Mapping[str, Any]:
        nonce = (Metadata or {}).get("satchel-write", "")
        return {"ETag": self._objects.put(Key, Body, nonce, IfMatch, IfNoneMatch)}

    def _list_objects_v2(self, *, Prefix: str, ContinuationToken: str = "", MaxKeys: int = 1000) -> Mapping[str, Any]:
        keys = sorted(key for key in self._objects.objects if key.startswith(Prefix) and key > ContinuationToken)
        is_cut = self._faults is not None and len(keys) > _PAGE and self._simulation.chance(self._faults.page)
        if is_cut:
            keys = keys[: 1 + self._simulation.random.randrange(len(keys) - 1)]
        contents = [
            {"Key": key, "ETag": tag, "Size": len(data)}
            for key, (tag, data, _) in ((key, self._objects.objects[key]) for key in keys)
        ]
        return {"Contents": contents, "IsTruncated": is_cut, "NextContinuationToken": keys[-1] if is_cut else ""}

    def _delete_object(self, *, Key: str, IfMatch: str) -> Mapping[str, Any]:
        self._objects.delete(Key, IfMatch)
        return {}

    def _delete_objects(self, *, Delete: Mapping[str, Any]) -> Mapping[str, Any]:
        tags = {each["Key"]: each.get("ETag") for each in Delete["Objects"]}
        keys, errors = [*tags], []
        self._simulation.random.shuffle(keys)
        first = self._simulation.random.randrange(len(keys) + 1)

        def delete(keys: list[str]) -> None:
            for key in keys:
                try:
                    self._objects.delete(key, tags[key])
                except Unmet:
                    errors.append({"Key": key, "Code": "PreconditionFailed"})

        delete(keys[:first])
        if 0 < first < len(keys):
            self._simulation.note(f"delete_objects {' '.join(sorted(keys[:first]))}, more to come")
            self._simulation.point()
        delete(keys[first:])
        self._simulation.note(f"delete_objects {' '.join(sorted(keys[first:]))}")
        return {"Errors": errors}


def opened_store(simulation: Simulation, objects: Bucket, faults: Faults | None) -> BucketStore:
    """A store of its own, as every process has."""
    with mock.patch.object(bucket, "Requests", lambda *_: SimulatedRequests(simulation, objects, faults)):
        store = BucketStore("b", "")
    store._view._taking = SimulatedLock(simulation)  # type: ignore[assignment]  # it is held during a listing
    return store
