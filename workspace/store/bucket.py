"""A workspace in a bucket: one object per file, one PUT per write, with conditions.

A PUT replaces an object atomically and is durable when it is answered, so nothing is renamed and `sync` has no meaning.
Every PUT and DELETE has a condition: the network may deliver a request long after it was given up, and it must replace
and remove nothing newer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

from ..base import KEY_BYTES, SatchelError, UsageError, check_path
from .contract import BUCKET, READ_LIMIT, Abilities, Exchanged, Exposure, FileChanged, FileContent, Sync, Version
from .remote_store import ListedFile, RemoteStore, md5_tag, missing, moment, taken, too_large
from .s3 import (
    PATIENCE,
    Body,
    Denied,
    NoSuchObject,
    OutOfRange,
    Patience,
    RequestOutcome,
    Requests,
    Unable,
    Unanswered,
    Unmet,
)

_AT_ONCE = 1000  # objects that S3 removes in one request
_HASH = re.compile('"[0-9a-f]{32}"')
_REFUSALS = 3
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_EVERYBODY = ("AllUsers", "AuthenticatedUsers")
_LARGEST = 5 << 30  # bytes that one PUT may have
_BUSY = "other programs keep changing it"
_NONCE = "satchel-write"  # metadata by which a writer recognises its own write


class _Listed(NamedTuple):
    """An object to remove, as this store has seen it."""

    path: str
    version: Version


class BucketStore(RemoteStore):
    """The `Store` below a prefix of a bucket. An empty prefix is the whole bucket."""

    def __init__(
        self, bucket: str, prefix: str, options: Mapping[str, Any] | None = None, *, patience: float = PATIENCE
    ):
        self._bucket = bucket
        self._prefix = f"{check_path(prefix)}/" if prefix else ""
        self._requests = Requests(bucket, options or {}, patience)
        self._tags_are_hashes = True  # until this server returns one that is not a hash
        self._has_conditional_delete = True  # until this server says that it has none
        super().__init__(f"s3://{bucket}/{prefix}".rstrip("/"), self._listing)

    @property
    def abilities(self) -> Abilities:
        return BUCKET

    @property
    def server(self) -> str:
        """Who answers, for people."""
        return self._requests.server

    def exposure(self) -> Exposure:
        encryption = self._setting("get_bucket_encryption", "ServerSideEncryptionConfigurationNotFoundError")
        versioning = self._setting("get_bucket_versioning")
        lifecycle = self._setting("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration")
        return Exposure(
            encrypted=self._requests.encryption or _algorithm(encryption),
            public=is_public(
                self._setting("get_public_access_block", "NoSuchPublicAccessBlockConfiguration"),
                self._setting("get_bucket_policy_status", "NoSuchBucketPolicy"),
                self._setting("get_bucket_acl"),
            ),
            versioned=None if versioning is None else versioning.get("Status") == "Enabled",
            removing=None if lifecycle is None else [*removing_rules(lifecycle, self._prefix)],
        )

    def _setting(self, method: str, absent: str = "") -> Mapping[str, Any] | None:
        """A setting of the bucket, and empty if the server says by the code `absent` that there is none. None if the
        server does not know it, or does not tell."""
        try:
            return self._requests.once(method, "can't be asked", self.url)
        except NoSuchObject as error:
            return {} if absent and str(error) == absent else None
        except (RequestOutcome, SatchelError):
            return None

    def expect(self, path: str, data: bytes) -> None:
        self._bodies.keep(path, data, md5_tag(data))

    def _listing(self, folder: str) -> Iterator[tuple[str, ListedFile]]:
        arguments: dict[str, Any] = {"Prefix": f"{self._key(folder)}/" if folder else self._prefix}
        while True:
            try:
                page = self._requests.call("list_objects_v2", "can't be listed", self.url, **arguments)
            except NoSuchObject:
                raise UsageError("can't be listed", path=self.url, why=f"{self.server} has no such place") from None
            for each in page.get("Contents", ()):
                path = each["Key"].removeprefix(self._prefix)
                yield path, _known(each)
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    # Reading

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent:
        check_path(path)
        if kept := self._kept(path, limit):
            return kept
        body = self._fetch(path, limit, self._requests.patience())
        if body is None:
            raise missing(path)
        if body.size > limit:
            raise too_large(path, limit)
        self._bodies.keep(path, body.data, body.facts["ETag"])
        return FileContent(body.data, body.facts["ETag"])

    def _is_listed(self, path: str) -> bool:
        """Whether an object exists, without a request for it: see `Denied`."""
        key = self._key(path)
        page = self._requests.call("list_objects_v2", "can't be listed", path, Prefix=key, MaxKeys=1)
        return any(each["Key"] == key for each in page.get("Contents", ()))

    @contextmanager
    def _telling_absent(self, path: str) -> Iterator[None]:
        """Absent for an object that the server denies because it does not exist."""
        try:
            yield
        except Denied:
            if self._is_listed(path):
                raise
            raise NoSuchObject from None

    def _get(self, path: str, limit: int, patience: Patience | None = None, **arguments: Any) -> Body:
        with self._telling_absent(path):
            return self._requests.fetch("can't be read", path, limit, patience, Key=self._key(path), **arguments)

    def _fetch(self, path: str, limit: int, patience: Patience) -> Body | None:
        """The object, or None; the cache is updated. If the bytes do not fit a tag that looks like their hash, they are
        fetched again, because an answer may be cut off. If the same bytes come twice, they are right, and this server's
        tags are no hashes."""
        before: bytes | None = None
        with self._view.look() as since:
            while True:
                try:
                    body = self._get(path, limit, patience)
                except NoSuchObject:
                    self._view.seen(path, None, since)
                    return None
                tag = body.facts["ETag"]
                if body.data == before:
                    self._tags_are_hashes = False
                if body.size > limit or md5_tag(body.data) == tag or not self._tells_hash(body):
                    known = ListedFile(tag, body.size, moment(body.facts.get("LastModified")))
                    self._view.seen(path, known, since)
                    return body
                before = body.data

    def _tells_hash(self, body: Body) -> bool:
        facts = body.facts
        is_plain = facts.get("ServerSideEncryption", "AES256") == "AES256" and not facts.get("SSECustomerAlgorithm")
        return self._tags_are_hashes and is_plain and _HASH.fullmatch(facts["ETag"]) is not None

    def tail(self, path: str, size: int) -> bytes:
        check_path(path)
        known, wanted = self._view.peek(path), max(size, 1)  # a range of no bytes can't be requested
        end = f"{path}//{wanted}"  # no file has such a path
        if known:
            data = self._bodies.find(path, known.version)
            data = self._bodies.find(end, known.version) if data is None else data
            if data is not None:
                return data[max(0, len(data) - size) :]
        body = self._range(path, f"-{wanted}", wanted)
        if body is None:
            return b""
        data = body.data if body.size <= wanted else self.read(path).data  # of a server that knows no ranges
        self._bodies.keep(end, data[-wanted:], body.facts["ETag"])
        return data[-size:] if size > 0 else b""

    def part(self, path: str, begin: int, size: int) -> bytes:
        check_path(path)
        wanted = max(size, 1)
        body = self._range(path, f"{begin}-{begin + wanted - 1}", wanted)
        if body is None:
            return b""
        return (body.data if body.size <= wanted else self.read(path).data[begin:])[:size]

    def _range(self, path: str, which: str, size: int) -> Body | None:
        """None if the object ends before."""
        try:
            return self._get(path, size, Range=f"bytes={which}")
        except NoSuchObject:
            raise missing(path) from None
        except OutOfRange:
            return None

    # Writing

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        if if_version is not None:
            return self._put_if(path, data, FileChanged, _only(if_version))
        patience = self._requests.patience()
        while True:
            try:
                return self._put_if(path, data, FileChanged, _only(self._last_seen(path, patience)))
            except FileChanged:
                self._wait_for_others("can't be written", path, patience)

    def _last_seen(self, path: str, patience: Patience) -> Version | None:
        """The version of the file that this store knows; it is requested if none is known."""
        check_path(path)
        if self._view.knows(path):
            known = self._view.peek(path)
            return known.version if known else None
        body = self._fetch(path, 0, patience)
        return body.facts["ETag"] if body else None

    def _wait_for_others(self, what: str, path: str, patience: Patience) -> None:
        """Another process has changed the file since this store saw it. The next attempt uses the new version."""
        self.check_owner()
        patience.wait(Unanswered(_BUSY), what, path)

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        """Nothing is displaced: the condition only allows the version that was seen."""
        return Exchanged(self._put_if(path, data, FileChanged, _only(if_version)), None)

    def create(self, path: str, data: bytes) -> Version:
        return self._put_if(path, data, taken, _only(None))

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        """Read, add, replace if it is unchanged. So the cost depends on the size of the file. One PUT if this store
        wrote it last."""
        patience = self._requests.patience()
        while True:
            old = self._whole(path, patience)
            if if_version is not None and (old is None or old.version != if_version):
                raise FileChanged(path)
            if old and not data:
                return old.version
            whole = old.data + data if old else data
            try:
                return self._put_if(path, whole, FileChanged, _only(old.version if old else None))
            except FileChanged:
                if if_version is not None:
                    raise
                self._wait_for_others("can't be appended to", path, patience)

    def _whole(self, path: str, patience: Patience) -> FileContent | None:
        if kept := self._kept(path, READ_LIMIT):
            return kept
        body = self._fetch(path, READ_LIMIT, patience)
        if body is not None and body.size > READ_LIMIT:
            raise too_large(path, READ_LIMIT)
        return FileContent(body.data, body.facts["ETag"]) if body else None

    def _put_if(
        self, path: str, data: bytes, refusal: Callable[[str], Exception], condition: Mapping[str, str]
    ) -> Version:
        """One PUT under a condition. If the answer does not tell whether it has happened, the object does.

        A refusal may be wrong: if a client sends a request again after its answer was lost, as its HTTP library does by
        itself, it is refused because of its own write.
        """
        try:
            tag = self._put_and_know(path, data, condition)
        except Unmet:
            raise refusal(path) from None
        except BaseException:
            self._view.forget(path)
            raise
        return self._wrote(path, data, tag)

    def _put_and_know(self, path: str, data: bytes, condition: Mapping[str, str]) -> Version:
        """Unmet if there is an object of another process, or none where there should be one."""
        what, key, nonce = "can't be written", self._key(path), uuid4().hex
        patience, refused = self._requests.patience(), 0
        while True:
            trouble = Unanswered(_BUSY)
            try:
                answer = self._requests.once(
                    "put_object", what, path, Key=key, Body=data, Metadata={_NONCE: nonce}, **condition
                )
                return str(answer["ETag"])
            except Unanswered as unknown:
                trouble = unknown
            except (Unmet, NoSuchObject):
                refused += 1
            found = self._fetch(path, len(data), patience)
            tag = found.facts["ETag"] if found else None
            if found and found.size == len(data) and found.data == data and _is_from(found, nonce):
                return str(tag)
            if tag != condition.get("IfMatch"):
                raise Unmet()
            if tag and refused > _REFUSALS:
                raise UsageError(
                    what,
                    path=path,
                    why=f"{self.server} refuses a PUT with `If-Match` although the condition holds",
                    remedy="use a server that has conditional writes",
                )
            # As if nothing was written: the cause of the refusal is gone, or the write is not done (yet).
            patience.wait(trouble, what, path)

    def _change(self, method: str, what: str, path: str, **arguments: Any) -> Mapping[str, Any]:
        try:
            return self._requests.call(method, what, path, **arguments)
        except NoSuchObject:
            raise
        except BaseException:
            self._view.forget(path)
            raise

    def rename(self, path: str, to: str) -> None:
        """Copied, and then removed: a crash in between leaves both. Some servers ignore the conditions of a COPY."""
        check_path(to)
        body = self._fetch(path, _LARGEST, self._requests.patience())
        if body is None:
            raise missing(path)
        self.replace(to, body.data)
        with suppress(FileChanged):  # a new file, written since
            self.remove(path, if_version=body.facts["ETag"])

    def bring(self, source: RemoteStore, path: str) -> bool:
        """Some servers ignore the conditions of a COPY, so one that arrives late may replace something newer."""
        known = source._view.get(path)
        if not isinstance(source, BucketStore) or known is None or not _HASH.fullmatch(known.version):
            return False
        place = {"Bucket": source._bucket, "Key": source._key(path)}
        try:
            answer = self._change("copy_object", "can't be copied", path, Key=self._key(path), CopySource=place)
        except (NoSuchObject, SatchelError):
            return False  # another server, or a permission that reading does not need
        tag = answer.get("CopyObjectResult", {}).get("ETag", "")
        if tag.strip('"') != known.version.strip('"'):  # SeaweedFS leaves them out there
            self._view.forget(path)
            return False
        self._view.wrote(path, known)
        return True

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        if if_version is not None:
            self._remove_if(path, if_version)
            return
        patience = self._requests.patience()
        while (version := self._current(path, patience)) is not None:
            try:
                self._remove_if(path, version)
                return
            except FileChanged:
                self._wait_for_others("can't be removed", path, patience)

    def _current(self, path: str, patience: Patience) -> Version | None:
        """The version of the file that this store knows; it is requested if no file is known."""
        check_path(path)
        if (known := self._view.peek(path)) is not None:
            return known.version
        body = self._fetch(path, 0, patience)
        return body.facts["ETag"] if body else None

    def _remove_if(self, path: str, version: Version) -> None:
        """One DELETE under a condition. Unless it is answered with success, the object tells whether it was removed."""
        what, patience, refused = "can't be removed", self._requests.patience(), 0
        try:
            while True:
                trouble = Unanswered(_BUSY)
                try:
                    condition = {"IfMatch": version} if self._has_conditional_delete else {}
                    self._requests.once("delete_object", what, path, Key=self._key(path), **condition)
                    break
                except Unable:
                    if not self._has_conditional_delete:
                        raise
                    self._has_conditional_delete = False
                except Unanswered as unknown:
                    trouble = unknown
                except (Unmet, NoSuchObject):
                    refused += 1
                found = self._fetch(path, 0, patience)
                if found is None:
                    break
                if found.facts["ETag"] != version:
                    raise FileChanged(path)
                if refused > _REFUSALS:
                    raise UsageError(
                        what,
                        path=path,
                        why=f"{self.server} refuses a DELETE with `If-Match` although the condition holds",
                        remedy="use a server that has conditional deletes, or ignores their condition",
                    )
                patience.wait(trouble, what, path)
        except FileChanged:
            raise
        except BaseException:
            self._view.forget(path)
            raise
        self._view.wrote(path, None)

    def remove_many(self, paths: Sequence[str]) -> None:
        listed: dict[str, _Listed] = {}
        for path in dict.fromkeys(paths):
            if (known := self._view.peek(path) or self._view.get(path)) is not None:
                listed[self._key(path)] = _Listed(path, known.version)
            else:
                self.remove(path)  # it looks itself for the version that its condition needs
        for start in range(0, len(listed), _AT_ONCE):
            self._remove_batch(dict([*listed.items()][start : start + _AT_ONCE]))

    def _remove_batch(self, listed: dict[str, _Listed]) -> None:
        tags = self._has_conditional_delete
        objects = [{"Key": key, "ETag": each.version} if tags else {"Key": key} for key, each in listed.items()]
        first = next(iter(listed.values())).path
        deletion = {"Objects": objects, "Quiet": True}
        answer = self._change("delete_objects", "can't be removed", first, Delete=deletion)
        failed = {each["Key"] for each in answer.get("Errors", ())} & listed.keys()
        for key, each in listed.items():
            if key not in failed:
                self._view.wrote(each.path, None)
        for key in sorted(failed):  # one of them alone: that request is repeated, or names the error
            self.remove(listed[key].path)

    def _key(self, path: str) -> str:
        key = self._prefix + check_path(path)
        if len(key) > KEY_BYTES // 4 and (size := len(key.encode())) > KEY_BYTES:
            raise UsageError(
                "can't be in the bucket",
                path=path,
                why=f"its key has {size} bytes with the prefix {self._prefix}, and may have {KEY_BYTES}",
                remedy="use a shorter name",
            )
        return key


def _algorithm(encryption: Mapping[str, Any] | None) -> str | None:
    if encryption is None:
        return None
    rules = encryption.get("ServerSideEncryptionConfiguration", {}).get("Rules", ())
    defaults = [each.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm", "") for each in rules]
    return str(defaults[0]) if defaults else ""


def is_public(
    block: Mapping[str, Any] | None, policy: Mapping[str, Any] | None, acl: Mapping[str, Any] | None
) -> bool | None:
    """Whether strangers can read a bucket, by the answers of S3 to GetPublicAccessBlock, GetBucketPolicyStatus and
    GetBucketAcl. Empty: there is none. None: the server does not tell."""
    blocked = (block or {}).get("PublicAccessBlockConfiguration", {})
    grants = [each.get("Grantee", {}).get("URI", "") for each in (acl or {}).get("Grants", ())]
    by_policy = None if policy is None else bool(policy.get("PolicyStatus", {}).get("IsPublic"))
    by_acl = None if acl is None else any(grant.endswith(_EVERYBODY) for grant in grants)
    if blocked.get("RestrictPublicBuckets"):
        by_policy = False
    if blocked.get("IgnorePublicAcls"):
        by_acl = False
    if by_policy or by_acl:
        return True
    return None if None in (by_policy, by_acl) else False


def removing_rules(lifecycle: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The rules of a lifecycle that remove or archive current objects below `prefix`, in words."""
    for number, rule in enumerate(lifecycle.get("Rules", ()), 1):
        scope = rule.get("Filter") or {}
        scope = scope.get("And") or scope
        start = scope.get("Prefix") or rule.get("Prefix") or ""
        is_ours = start.startswith(prefix) or prefix.startswith(start)
        if rule.get("Status") != "Enabled" or not is_ours or scope.get("Tag") or scope.get("Tags"):
            continue
        name = rule.get("ID") or f"number {number}"
        expiration = rule.get("Expiration") or {}
        if expiration.get("Days") or expiration.get("Date"):
            yield f"{name} removes objects"
        elif any(each.get("StorageClass") in _ARCHIVES for each in rule.get("Transitions") or ()):
            yield f"{name} archives objects"


def _only(version: Version | None) -> dict[str, str]:
    """The condition of a PUT: the object is this version, or does not exist."""
    return {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}


def _known(facts: Mapping[str, Any]) -> ListedFile:
    """The facts about an object in a listing."""
    return ListedFile(facts["ETag"], int(facts["Size"]), moment(facts.get("LastModified")))


def _is_from(found: Body, nonce: str) -> bool:
    """Whether this was written with `nonce`; servers that keep no metadata are believed."""
    return bool(found.facts.get("Metadata", {}).get(_NONCE, nonce) == nonce)
