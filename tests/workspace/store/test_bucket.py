"""A workspace in a bucket: what it costs, whose keys it minds, which options it obeys, and what its errors say."""

from __future__ import annotations

import functools
import io
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import fsspec.config
import pytest
from aiobotocore.session import AioSession
from between import Answer, Between, Cut, Drop, Meddling, Request, between
from botocore.loaders import JSONFileLoader
from botocore.utils import parse_timestamp
from servers import BUCKET, KEY, SECRET, Server

from satchel.workspace.base.errors import InvalidFile, LeaseHeld, SatchelError, StorageFailed, UsageError
from satchel.workspace.base.names import version
from satchel.workspace.store import FileChanged, Store, open_store
from satchel.workspace.store import bucket as bucket_module
from satchel.workspace.store.bucket import BucketStore
from satchel.workspace.store.s3 import timestamp


@functools.cache
def session() -> AioSession:
    """One for all, as it takes a tenth of a second to make."""
    return AioSession()


class Way:
    """A store that talks to a server through `between`, and what that is told to do with requests."""

    def __init__(self, server: Server):
        self.server = server
        self.meddle: Meddling = lambda request: None
        self.url = server.place()
        self.prefix = self.url.removeprefix(f"s3://{BUCKET}/")
        self.between: Between

    def store(self, patience: float = 20.0, **options: object) -> BucketStore:
        given = {**self.server.storage_options(self.between.endpoint), "session": session(), **options}
        return BucketStore(BUCKET, self.prefix, given, patience=patience)

    def put(self, path: str, data: bytes) -> None:
        self.server.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{path}", Body=data)

    def once(self, told: Answer | Drop | Cut, method: str) -> None:
        """The next request of a method is spoilt."""
        left = [told]
        self.meddle = lambda request: left.pop() if left and request.method == method else None


@pytest.fixture(params=["seaweedfs", pytest.param("moto", marks=pytest.mark.slow)])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    server: Server = request.getfixturevalue(request.param)
    way = Way(server)
    with between(server.endpoint, lambda request: way.meddle(request)) as way.between:
        yield way


# What it costs


def test_looking_costs_one_listing_and_reading_what_was_read_nothing(way: Way) -> None:
    for path in ("a/1", "a/2", "b/1"):
        way.put(path, path.encode())
    store = way.store()
    with way.between.costs("GET"):
        assert [entry.path for entry in store.list("a")] == ["a/1", "a/2"] and store.version("none") is None
        assert list(store.folders("")) == ["a", "b"] and store.trace("b/1").at.endswith("Z")
    with way.between.costs("GET"):
        assert store.read("a/1") == store.read("a/1")
        assert store.tail("a/1", 1) == b"1"
    with way.between.costs("GET"):
        store.refresh()
        assert store.read("a/1").data == b"a/1"
    way.put("a/1", b"changed")
    with way.between.costs("GET", "GET"):
        store.refresh()
        assert store.read("a/1").data == b"changed"


def test_a_write_is_one_put_and_can_be_read_for_nothing(way: Way) -> None:
    store = way.store()
    with way.between.costs("PUT", "PUT", "PUT"):
        store.create("a", b"1")
        version = store.replace("a", b"2")
        store.replace("a", b"3", if_version=version)
        assert store.read("a").data == b"3"
    with way.between.costs("GET", "PUT", "PUT", "PUT"):  # looked for once
        for line in (b"1\n", b"2\n", b"3\n"):
            store.append("m", line)
    assert way.store().read("m").data == b"1\n2\n3\n"


def test_what_is_expected_is_not_fetched_if_the_listing_has_its_hash(way: Way) -> None:
    way.put("a", b"as it was projected")
    store = way.store()
    store.expect("a", b"as it was projected")
    with way.between.costs("GET"):
        store.refresh()
        assert store.read("a").data == b"as it was projected"
    other = way.store()
    other.expect("a", b"something else")
    other.refresh()
    assert other.read("a").data == b"as it was projected"


def test_what_is_not_there_is_missing_though_the_server_calls_it_denied(way: Way) -> None:
    """As S3 does, if one may list only what is below a prefix."""
    way.put("there", b"data")
    way.put("closed", b"data")

    def meddle(request: Request) -> Answer | None:
        is_object = request.method in ("GET", "HEAD") and "list-type" not in request.path
        return Answer(403, "AccessDenied") if is_object and not request.path.endswith("/there") else None

    way.meddle = meddle
    store = way.store()
    assert store.read("there").data == b"data" and store.tail("there", 2) == b"ta" and store.tail("there", 0) == b""
    for absent in ("never", "ther", "closed/in"):
        with pytest.raises(FileNotFoundError):
            store.read(absent)
        with pytest.raises(FileNotFoundError):
            store.tail(absent, 9)
    store.append("log", b"1")
    store.append("log", b"2")
    assert store.read("log").data == b"12"
    with pytest.raises(StorageFailed, match="does not allow"):
        store.read("closed")


def test_a_file_known_to_be_too_large_is_not_fetched(way: Way) -> None:
    way.put("a", b"x" * 100)
    store = way.store()
    store.refresh()
    with way.between.costs(), pytest.raises(InvalidFile):
        store.read("a", limit=99)


def test_many_files_are_listed_page_by_page_and_removed_in_batches(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "_AT_ONCE", 3)
    paths = [f"j/{number}" for number in range(7)]
    for path in paths:
        way.put(path, b"x")
    store = way.store(s3_additional_kwargs={"MaxKeys": 3})
    with way.between.costs("GET", "GET", "GET"):
        assert [entry.path for entry in store.list("j")] == paths
    with way.between.costs("POST", "POST", "POST"):
        store.remove_many(paths)
    store.refresh()
    assert list(store.list("j")) == []


def test_a_file_that_can_not_be_removed_with_others_is_named(way: Way) -> None:
    for path in ("a", "b"):
        way.put(path, b"x")
    store = way.store()
    kept = way.prefix + "/b"
    errors = f"<DeleteResult><Error><Key>{kept}</Key><Code>AccessDenied</Code><Message/></Error></DeleteResult>"

    def refuse(request: Request) -> Answer | None:
        if request.method == "POST":
            return Answer(200, body=errors)
        return Answer(403, "AccessDenied") if request.method == "DELETE" else None

    way.meddle = refuse
    with pytest.raises(StorageFailed, match=r"^b: "):
        store.remove_many(["a", "b"])
    assert store.version("b") is not None


def test_tags_that_are_no_hashes_do_not_make_every_read_two(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("a", "b"):
        way.put(path, path.encode())
    monkeypatch.setattr(bucket_module, "md5_tag", lambda data: f'"{len(data):032x}"')
    store = way.store()
    with way.between.costs("GET", "GET", "GET"):  # the first is believed when it has come twice
        assert (store.read("a").data, store.read("b").data) == (b"a", b"b")


# Whose keys


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T08:01:02.000Z",
        "2026-11-22T09:01:02+01:00",
        "Sun, 22 Nov 2026 08:01:02 GMT",
        1795334462,
        "1795334462",
        "20261122T080102Z",
        "Sun Nov 22 08:01:02 UTC 2026",
    ],
)
def test_dates_are_those_that_botocore_finds(text: object) -> None:
    assert timestamp(text) == datetime(2026, 11, 22, 8, 1, 2, tzinfo=UTC) == parse_timestamp(text)


def test_a_listing_spends_no_time_on_dates(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's own way takes a tenth of a millisecond for each, and a listing has a thousand."""
    way.put("todo.md", b"")
    slow: list[object] = []
    monkeypatch.setattr("dateutil.parser.parse", lambda text, **_: slow.append(text) or datetime.now(UTC))
    store = way.store(session=None)
    assert store.version("todo.md") and store.read("todo.md").data == b"" and not slow


def test_what_tells_a_client_what_s3_is_is_read_once(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of JSON, which takes longer to parse than an opening takes."""
    way.store(session=None).refresh()
    read: list[str] = []
    load = JSONFileLoader.load_file
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda self, path: read.append(path) or load(self, path))
    way.store(session=None).refresh()
    assert not read and way.between.count("GET") == 2


def test_requests_say_whose_they_are(way: Way) -> None:
    """Who pays for a bucket looks into its log for who has asked."""
    said: list[str] = []
    way.meddle = lambda request: said.append(request.headers.get("user-agent", ""))  # type: ignore[func-returns-value]
    way.store().version("todo.md")
    assert said and all(each.startswith(f"satchel/{version()}") for each in said), said


def test_keys_that_are_no_names_are_ignored_and_lead_nowhere(way: Way) -> None:
    hostile = ["f/", "", "c:x", "nul?", "e."]
    if way.server.kind == "moto":  # SeaweedFS refuses these, or makes others of them
        hostile += ["../x", "a/../../x", "/etc/passwd", "a//b", "a\\b", "d/."]
    for path in ("ok", "f/ok", *hostile):
        way.put(path, b"x")
    way.server.client.put_object(Bucket=BUCKET, Key=way.prefix + "-beside/x", Body=b"x")
    store = way.store()
    assert [entry.path for entry in store.list("")] == ["ok"]
    folders = set(store.folders(""))
    assert "f" in folders and [entry.path for entry in store.list("f")] == ["f/ok"]
    assert not [entry.path for folder in folders - {"f"} for entry in store.list(folder)], "there are no files in them"


def test_a_whole_bucket_can_be_a_workspace(seaweedfs: Server) -> None:
    seaweedfs.client.create_bucket(Bucket="whole-bucket")
    for url in ("s3://whole-bucket", "s3://whole-bucket/"):
        store = open_store(url, seaweedfs.storage_options())
        store.replace("a/b", url.encode())
        assert store.url == "s3://whole-bucket" and list(store.folders("")) == ["a"]
    assert seaweedfs.client.get_object(Bucket="whole-bucket", Key="a/b")["Body"].read() == b"s3://whole-bucket/"


# Options


def test_encryption_and_other_options_are_sent_with_every_write(way: Way) -> None:
    store = way.store(
        s3_additional_kwargs='{"ServerSideEncryption": "AES256", "ACL": "private", "Metadata": {"team": "x"}}'
    )
    store.create("a", b"1")
    store.replace("a", b"2")
    store.rename("a", "b")
    puts = [request for request in way.between.seen if request.method == "PUT"]
    assert len(puts) == 3
    assert all(each.headers.get("x-amz-server-side-encryption") == "AES256" for each in puts)
    assert all(each.headers.get("x-amz-acl") == "private" for each in puts)
    assert all(each.headers.get("x-amz-meta-team") == "x" for each in puts[:2])
    assert store.read("b").data == b"2"


def test_what_the_environment_says_is_obeyed(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in way.server.environment(way.between.endpoint).items():
        monkeypatch.setenv(name, value)
    open_store(way.url).create("a", b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": way.between.endpoint, "use_ssl": "false"})
    assert open_store(way.url).read("a").data == b"1"
    assert way.between.count() == 2


def test_an_option_that_nobody_knows_is_named_without_its_value(way: Way) -> None:
    with pytest.raises(UsageError, match="no option sercet") as refused:
        open_store(way.url, {**way.server.storage_options(), "sercet": SECRET}).refresh()
    assert SECRET not in str(refused.value)


# Outcomes


@pytest.mark.parametrize("told", [Drop(after=True), Answer(503, "SlowDown", after=True), Answer(409, after=True)])
def test_an_own_write_whose_answer_was_lost_is_known_again(way: Way, told: Answer | Drop) -> None:
    store = way.store()
    way.once(told, "PUT")
    store.create("a", b"1")
    version = store.read("a").version
    way.once(told, "PUT")
    assert store.replace("a", b"2", if_version=version) == store.read("a").version
    way.once(told, "PUT")
    store.exchange("a", b"3", if_version=store.read("a").version)
    way.once(told, "PUT")
    store.append("a", b"4")
    assert way.store().read("a").data == b"34"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("batch", "has_forgotten"), [(False, False), (True, False), (True, True)])
def test_a_removal_that_was_delayed_spares_what_a_newer_owner_has_written(
    way: Way, batch: bool, has_forgotten: bool
) -> None:
    """The newer owner writes while the request is under way. `has_forgotten`: a write has failed before, so what was
    listed does not count any more."""
    if batch and way.server.kind == "moto":
        pytest.skip("moto ignores the conditions of several removals in one request")
    store, owner = way.store(), way.store()
    store.create("f/a", b"old")
    if has_forgotten:
        store.refresh()
        way.meddle = lambda request: Answer(403, "AccessDenied") if request.method == "PUT" else None
        with pytest.raises(StorageFailed):
            store.create("f/b", b"")

    def taken_over() -> None:
        raise LeaseHeld("another process has taken it")

    def meddle(request: Request) -> None:
        if request.method in ("DELETE", "POST") and owner.read("f/a").data == b"old":
            owner.replace("f/a", b"new")

    way.meddle, store.check_owner = meddle, taken_over
    with pytest.raises(LeaseHeld):
        store.remove_many(["f/a"]) if batch else store.remove("f/a")
    assert way.store().read("f/a").data == b"new"

    store.check_owner = lambda: None
    store.remove("f/a")
    assert way.store().version("f/a") is None, "the owner of the run may remove it"


def test_a_server_without_conditional_removals_still_removes(way: Way) -> None:
    def meddle(request: Request) -> Answer | None:
        has_condition = request.method == "DELETE" and "if-match" in request.headers
        return Answer(501, "NotImplemented") if has_condition else None

    way.meddle, store = meddle, way.store()
    for path in "ab":
        store.create(path, b"1")
    with way.between.costs("DELETE", "GET", "DELETE", "DELETE"):
        store.remove("a")
        store.remove("b")
    assert not [*way.store().list("")]


def test_a_rivals_write_is_never_taken_for_an_own_one_even_with_the_same_bytes(way: Way) -> None:
    store, rival = way.store(), way.store()
    rival.create("a", b"same")
    with pytest.raises(FileExistsError):
        store.create("a", b"same")
    version = store.read("a").version
    rival.replace("a", b"other", if_version=version)

    way.once(Answer(500, "InternalError"), "PUT")  # not done, and it can't be known
    with pytest.raises(FileChanged):
        store.replace("a", b"other", if_version=version)


def test_a_busy_server_is_waited_for_as_long_as_it_says(way: Way) -> None:
    store = way.store()
    way.once(Answer(503, "SlowDown", headers={"retry-after": "1"}), "GET")
    way.put("a", b"1")
    import time

    began = time.monotonic()
    assert store.read("a").data == b"1"
    assert time.monotonic() - began >= 1 and way.between.count() == 2


@pytest.mark.parametrize("cut", [Cut(3), Cut(3, honest=True)])
def test_a_body_cut_short_is_fetched_again(way: Way, cut: Cut) -> None:
    way.put("a", b"whole body")
    way.once(cut, "GET")
    assert way.store().read("a").data == b"whole body"


# Errors


def refused(way: Way, told: Answer) -> tuple[SatchelError, int]:
    store = way.store()
    way.meddle = lambda request: told
    before = way.between.count()
    with pytest.raises(SatchelError) as raised:
        store.create("a", b"1")
    return raised.value, way.between.count() - before


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "status, code",
    [
        (403, "AccessDenied"),
        (401, ""),
        (400, "ExpiredToken"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
    ],
)
def test_credentials_that_are_refused_are_an_error_at_once(way: Way, status: int, code: str) -> None:
    message = f"User {KEY} is not allowed to perform: s3:PutObject with {SECRET}"
    error, requests = refused(way, Answer(status, code, message))
    assert isinstance(error, StorageFailed) and requests == 1
    assert error.remedy and "renew the credentials" in error.remedy and "start it again" in error.remedy
    assert (code or "401") in str(error) and SECRET not in str(error)
    assert code != "AccessDenied" or "s3:PutObject" in str(error)


def test_a_bucket_that_is_not_there_is_said_to_be_missing(seaweedfs: Server) -> None:
    store = open_store("s3://no-such-bucket-here/x", seaweedfs.storage_options())
    calls: list[Callable[[], object]] = [
        store.refresh,
        lambda: store.read("a"),
        lambda: store.create("a", b""),
        lambda: store.replace("a", b""),
        lambda: store.rename("a", "b"),
        lambda: store.append("a", b"x"),
        lambda: store.remove_many(["a"]),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="no such bucket") as raised:
            call()
        assert raised.value.remedy and "endpoint" in raised.value.remedy


@pytest.mark.parametrize(
    "url", [f"s3://{KEY}:{SECRET}@bucket/x", f"s3://{SECRET}@bucket/x", f"sftp://me:{SECRET}@host/x"]
)
def test_a_url_with_credentials_is_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(UsageError, match="credentials") as raised:
        open_store(url)
    assert SECRET not in str(raised.value) and raised.value.remedy


def pickled(error: Exception) -> bytes:
    """By the error's own rule: Dask, which another test may have loaded, pickles all exceptions with their causes."""
    pickler = pickle.Pickler(data := io.BytesIO())
    pickler.dispatch_table = {}
    pickler.dump(error)
    return data.getvalue()


def test_no_error_and_no_log_line_shows_a_credential(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong: the texts, the whole traceback, what is pickled, and what is logged."""
    caplog.set_level(logging.INFO)
    planted = "planted-5e07"
    endpoint = way.between.endpoint.replace("http://", f"http://{KEY}:{planted}@")
    told: list[Answer | Drop] = [
        Answer(403, "AccessDenied", f"{planted} {SECRET}"),
        Answer(500, planted, planted),
        Answer(418, planted + "!"),
        Answer(301, "PermanentRedirect", planted),
        Answer(400, "AuthorizationHeaderMalformed", planted),
        Answer(404, "NoSuchBucket", planted),
        Answer(501, "NotImplemented", planted),
        Answer(200, body=f"<{planted}"),
        Drop(after=False),
    ]
    stores: list[Store] = [way.store(patience=0.1, token=planted), way.store(patience=0.1, endpoint_url=endpoint)]
    nobody = way.store(patience=0.1, endpoint_url=f"http://{KEY}:{planted}@127.0.0.1:9")
    with pytest.raises(StorageFailed) as raised:
        nobody.refresh()
    texts = [str(raised.value), "".join(traceback.format_exception(raised.value)), repr(nobody), nobody.url]
    for each in told:
        way.meddle = lambda request, each=each: each  # type: ignore[misc]
        for store in stores:
            for call in (store.refresh, lambda store=store: store.create("a", b"x")):  # type: ignore[misc]
                try:
                    call()
                except SatchelError as error:
                    texts += [str(error), "".join(traceback.format_exception(error)), str(pickled(error))]
            texts += [repr(store), store.url]
    assert len(texts) > 80
    for secret in (SECRET, planted, "Authorization:", "AWS4-HMAC", "Signature="):
        assert not [text for text in texts if secret in text]
        assert secret not in caplog.text


def test_an_endpoint_where_nobody_listens_is_named(seaweedfs: Server) -> None:
    store = BucketStore("bucket", "x", seaweedfs.storage_options("http://127.0.0.1:9"), patience=0.3)
    with pytest.raises(StorageFailed, match=r"127\.0\.0\.1:9; is the endpoint right") as raised:
        store.refresh()
    assert raised.value.remedy


def test_no_credentials_at_all_is_said(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store("s3://bucket/x", {"endpoint_url": seaweedfs.endpoint})
    with pytest.raises(StorageFailed, match="no credentials") as raised:
        store.refresh()
    assert raised.value.remedy and "AWS_PROFILE" in raised.value.remedy


def test_a_request_that_is_refused_in_a_forked_process_leaves_a_coroutine(
    way: Way, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """s3fs refuses to work in a process that was forked off. What was never awaited is told later, of other code."""
    store = way.store()
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 4242)
        for request in (lambda: store.read("a"), lambda: [*store.list("")]):
            with pytest.raises(RuntimeError, match="fork"):
                request()
    assert [str(warning.message) for warning in recwarn] == []
