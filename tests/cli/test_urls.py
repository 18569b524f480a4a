"""Commands take URLs like paths: what works on a folder works in a bucket, and a slip is told at once."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm
from faults.faults import unconditional
from faults.proxy import proxying
from servers import BUCKET, KEY, SECRET, Server
from waits import PATIENCE

from satchel.runtime.agent import code
from satchel.runtime.agent import declaration as loading
from satchel.workspace.base.errors import Refused
from satchel.workspace.store import open_store

from .conftest import ASKING, PLAIN, Cli, Make, data_of, satchel

NAPPING = """
import asyncio
from satchel import agent, step

@step
async def nap(number: int) -> int:
    await asyncio.sleep(0.5)
    return number

async def work(run, item):
    for number in range(200):
        await nap(number)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["rest"])
    await run.todo.each(work)
"""
HELPED = PLAIN.replace("from satchel import", "from kit.words import loud\nfrom satchel import").replace(
    "text.upper()", "loud(text)"
)

Upload = Callable[..., str]


@pytest.fixture
def s3(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """The environment knows the server, here and for every process that is started."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return seaweedfs


@pytest.fixture
def upload(s3: Server, make: Make) -> Upload:
    """Makes a workspace in a bucket of an agent's source, as `aws s3 cp` would. Returns its URL."""

    def upload(source: str = PLAIN, url: str = "", **files: str) -> str:
        url = url or s3.place()
        put(s3, f"{url}/workspace.yaml", "format: 1\nrun_id: demo-1a2b\nagent: agent.py:main\n")
        put(s3, f"{url}/agent.py", source)
        for path, text in files.items():
            put(s3, f"{url}/{path}", text)
        return url

    return upload


@pytest.fixture
def stopped() -> Iterator[list[str]]:
    """URLs whose runs are stopped at the end, whatever has become of the test."""
    urls: list[str] = []
    yield urls
    for url in urls:
        satchel("stop", url)


def put(server: Server, url: str, text: str) -> None:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    server.client.put_object(Bucket=bucket, Key=key, Body=text.encode())


def keys(server: Server, url: str) -> list[str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    found = server.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", [])
    return [each["Key"].removeprefix(f"{prefix}/") for each in found]


def test_a_new_workspace_in_a_bucket_is_not_whole_or_overwrites(s3: Server, cli: Cli, make: Make) -> None:
    folder, url = make(), s3.place()
    result = cli("new", folder, url)
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == f"next: satchel run {url}"
    assert sorted(keys(s3, url)) == ["agent.py", "workspace.yaml"]
    again = cli("new", folder, url)
    assert again.exit_code == 2 and "is not empty" in again.stderr
    assert cli("ls", url).exit_code == 0


def test_what_a_bucket_can_do_is_known_only_after_a_run(cli: Cli, s3: Server) -> None:
    url = s3.place()
    tried = cli("check", "--storage", url)
    assert tried.exit_code == 0 and "one writer: guaranteed by conditional writes" in tried.stdout, tried.output
    assert data_of(cli("check", "--storage", "--json", url))["abilities"]["conditional_replace"]
    assert not keys(s3, url), "what was tried with is gone"


def test_a_bucket_that_keeps_nobody_out_is_found_fit(cli: Cli, moto: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = moto.place()
    with proxying(moto.endpoint) as proxy, proxy.plant(unconditional(), times=None):
        for name, value in moto.environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        tried = cli("check", "--storage", url)
    assert tried.exit_code == 2 and "can't keep two writers apart" in tried.stderr and not keys(moto, url)


def test_commands_that_only_look_need_a_folder(upload: Upload, cli: Cli, s3: Server) -> None:
    url = upload(HELPED, **{"kit/__init__.py": "", "kit/words.py": "def loud(text): return text.upper()\n"})
    assert data_of(cli("status", "--json", url))["state"] == "new"
    done = cli("run", url)
    assert done.exit_code == 0, done.output
    before = sorted(keys(s3, url))
    assert {"outputs/1.txt", "state.json", "todo.md"} <= set(before)
    told = cli("status", f"{url}/")
    assert told.exit_code == 0 and "completed" in told.stdout and url in told.stdout
    assert "say a" in cli("log", url).stdout
    checked = data_of(cli("check", "--json", url))
    assert checked["ok"] and checked["abilities"]["exclusive_create"] and not checked["abilities"]["lock"]
    assert "one writer: guaranteed by conditional writes" in cli("check", url).stdout
    assert "nothing to merge" in cli("merge", url).stdout
    assert sorted(keys(s3, url)) == before


def test_workspaces_below_a_url_are_missed_or_made_up(upload: Upload, cli: Cli, s3: Server) -> None:
    root = s3.place()
    for name in ("a/deep/new", "b", ".hidden/secret", "b/inside"):
        upload(url=f"{root}/{name}")
    put(s3, f"{root}/broken/workspace.yaml", "a: b: c\n")
    put(s3, f"{root}/notes/readme.md", "nothing to run")
    put(s3, f"{root}/a:b/workspace.yaml", "format: 1\n")
    told = {each["folder"].removeprefix(f"{root}/"): each["state"] for each in data_of(cli("ls", "--json", root))}
    assert told == {"a/deep/new": "new", "b": "new", "broken": "damaged"}


def test_ls_costs_a_listing_for_each_workspace(upload: Upload, s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.workspace.inspect.discovery import below_store
    from satchel.workspace.inspect.load import glance
    from satchel.workspace.store.s3 import Requests

    root = s3.place()
    for number in range(3):
        upload(url=f"{root}/{number}")
    listings = []
    call = Requests.call

    def counted(self: Requests, method: str, *args: object, **arguments: object) -> object:
        listings.extend([method] if method == "list_objects_v2" else [])
        return call(self, method, *args, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Requests, "call", counted)
    assert [glance(store).moment.seq for store in below_store(open_store(root))] == [0, 0, 0]
    assert listings == ["list_objects_v2"]


@pytest.mark.slow
def test_work_and_answers_go_to_the_bucket(upload: Upload, cli: Cli, s3: Server) -> None:
    url = upload(ASKING)
    sent = cli("send", url, "Water the plants")
    assert sent.exit_code == 0 and sent.stdout.startswith(f"{url}/inbox/")
    assert cli("run", url).exit_code == 4
    assert f"satchel answer {url} d1" in cli("status", url).stdout
    answered = cli("answer", url, "d1", "done", "--result", '"4711"')
    assert answered.exit_code == 0, answered.output
    assert cli("run", url).exit_code == 0
    assert json.loads(open_store(url).read("state.json").data)["data"]["answer"] == "4711"
    paused = upload()
    assert "paused" in cli("pause", paused).stdout and "pause.yaml" in keys(s3, paused)
    assert cli("cancel", "--yes", paused).exit_code == 0
    assert data_of(cli("status", "--json", paused))["state"] == "cancelled"
    assert cli("recover", url).exit_code == 0


@pytest.mark.parametrize(
    "typed, said",
    [
        ("s3:/bucket/run", "s3://bucket/run"),
        ("s3:bucket/run", "s3://bucket/run"),
        ("s3//bucket/run", "s3://bucket/run"),
        ("S3://bucket/run", "lower case"),
        ("s3://", "names no bucket"),
        ("s3:///run", "names no bucket"),
        ("s4://bucket/run", "did you mean s3://"),
        ("nonsense://bucket/run", "no protocol 'nonsense'"),
        ("s3://bucket/../run", "can't hold a workspace"),
        ("s3://bucket//run", "can't hold a workspace"),
        ("s3://bucket/run/workspace.yaml", "name its folder: s3://bucket/run"),
        ("s3://key:a-secret@bucket/run", "password"),
    ],
)
def test_a_slip_in_a_url_is_taken_for_a_place(typed: str, said: str, cli: Cli) -> None:
    for words in (("status", typed), ("ls", typed), ("stop", "--all", typed), ("new", "digest", typed)):
        result = cli(*words)
        assert result.exit_code == 2 and said.casefold() in result.stderr.casefold(), (words, result.stderr)
        assert "a-secret" not in result.output
    assert not Path("s3:").exists()


def test_a_missing_bucket_or_run_is_a_riddle(s3: Server, cli: Cli) -> None:
    missing = cli("ls", "s3://no-such-bucket-here")
    assert missing.exit_code == 2 and "no such bucket" in missing.stderr
    nothing = cli("status", s3.place())
    assert nothing.exit_code == 2 and "is not a workspace" in nothing.stderr
    assert cli("send", s3.place(), "hello").exit_code == 2
    alone = cli("send", f"s3://{BUCKET}/x")
    assert alone.exit_code == 2 and "say what to send" in alone.stderr


@pytest.mark.slow
def test_a_storage_option_does_not_arrive_or_shows_in_a_command_line(
    seaweedfs: Server, upload: Upload, monkeypatch: pytest.MonkeyPatch, stopped: list[str], tmp_path: Path
) -> None:
    (temporary := tmp_path / "tmp").mkdir()  # a killed process of the same number has left its copies elsewhere
    monkeypatch.setenv("TMPDIR", str(temporary))
    url = upload(NAPPING)
    for name in seaweedfs.environment():
        monkeypatch.delenv(name)
    options = {"key": KEY, "secret": SECRET, "client_kwargs": json.dumps({"endpoint_url": seaweedfs.endpoint})}
    words = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
    environment = {**os.environ, "FSSPEC_S3": '{"anon": false, "key": "other"}', "FSSPEC_S3_SECRET": "another"}
    done = satchel("run", "--detach", "--json", *words, url, is_cold=True, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    stopped.append(url)
    child = json.loads(open_store(url).read(".satchel/lease.json").data)["pid"]
    for pid in (told["pid"], child):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    log = Path(told["log"])
    assert log.is_relative_to(os.environ["XDG_STATE_HOME"]) and stat.S_IMODE(log.stat().st_mode) == 0o600
    copies = [*temporary.glob(f"satchel-agent-{child}-*")]
    assert {stat.S_IMODE(each.stat().st_mode) for each in copies} == {0o700}
    ended = satchel("stop", url)
    assert ended.returncode == 0 and str(child) in ended.stdout, ended.stderr
    assert not any(each.exists() for each in copies)
    assert SECRET not in log.read_text() + done.stdout + done.stderr + ended.stdout + ended.stderr
    store = open_store(url)
    for key in keys(seaweedfs, url):
        assert SECRET.encode() not in store.read(key).data, key


def test_wrong_options_are_ignored_or_tell_a_secret(upload: Upload, cli: Cli, make: Make) -> None:
    url, folder = upload(), make()
    bare = cli("status", "--storage-option", "no-equals-secret", url)
    assert bare.exit_code == 2 and "NAME=VALUE" in bare.stderr and "secret" not in bare.stderr
    local = cli("status", "--storage-option", "key=1", folder)
    assert local.exit_code == 2 and "for URLs" in local.stderr
    wrong = satchel("status", "--storage-option", "key=12", "--storage-option", "secret=hush-hush", url)
    assert wrong.returncode != 0 and "credentials" in wrong.stderr and "hush" not in wrong.stderr, wrong.stderr


@pytest.mark.slow
def test_an_emergency_in_a_bucket_is_not_seen(upload: Upload, s3: Server, stopped: list[str]) -> None:
    url = upload(NAPPING)
    stopped.append(url)
    assert satchel("run", "--detach", url).returncode == 0
    put(s3, f"{url}/pause.yaml", "mode: emergency\n")
    give_up, store = time.monotonic() + PATIENCE, open_store(url)
    pid = json.loads(store.read(".satchel/lease.json").data)["pid"]
    while Path(f"/proc/{pid}/stat").exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    while b"forced: true" not in store.read("pause.yaml").data:
        assert time.monotonic() < give_up
        time.sleep(0.2)
        store.refresh()
    assert data_of_process("status", "--json", url)["state"] == "paused"


def data_of_process(*words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(satchel(*words).stdout)
    return found


@pytest.mark.slow
def test_serve_does_not_see_a_new_workspace_below_a_url(upload: Upload, s3: Server) -> None:
    root = s3.place()
    upload(url=f"{root}/first")
    serving = warm.Popen([sys.executable, "-m", "satchel", "serve", "--json", root], stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(150, serving.kill)  # then the loop below ends
    timer.start()
    try:
        assert serving.stdout
        seen = []
        for line in serving.stdout:
            event = json.loads(line)
            if event["event"] == "warned":  # both were made of one folder, and have one run_id
                continue
            seen.append((event["event"], event["folder"].removeprefix(f"{root}/")))
            if seen[-1] == ("completed", "first"):
                upload(url=f"{root}/second")
            if seen[-1] == ("completed", "second"):
                break
        assert seen == [(kind, name) for name in ("first", "second") for kind in ("started", "completed")]
        serving.terminate()
        assert serving.wait(PATIENCE) == 0
    finally:
        timer.cancel()
        serving.kill()
        serving.communicate()


def test_the_code_of_a_bucket_leads_out_or_is_too_much(
    upload: Upload, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload(**{"kit/a.py": "A = 1", "outputs/x.py": "no", "prompts/p.txt": "hi", "data/huge.csv": "1,2"})
    put(s3, f"{url}/kit/c:escape.py", "no")
    put(s3, f"{url}/.git/hook.py", "no")
    store = open_store(url)
    folder = Path(code.folder_of(store))
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == ["agent.py", "kit/a.py", "prompts/p.txt"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert code.folder_of(store) == str(folder)
    assert code.shown(f"{folder}/kit/a.py") == "kit/a.py"
    assert loading.load(store, "agent.py:main").function.__name__ == "main"
    put(s3, f"{url}/kit/a.py", "A = 2")
    store.refresh()
    assert Path(code.folder_of(store), "kit/a.py").read_text() == "A = 2"
    monkeypatch.setattr(code, "LIMIT", 20)
    with pytest.raises(Refused, match="can't be fetched"):
        code.folder_of(open_store(f"{url}"))


def test_completion_asks_a_network(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        for words in ("satchel status s3://bu", "satchel answer s3://bucket/run a", "satchel ls s3:"):
            shell = {"_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
            done = satchel(env={**os.environ, **shell})
            assert done.returncode == 0 and not done.stderr
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_folder_pays_for_urls(make: Make) -> None:
    folder = make()
    code = (
        "import sys\nfrom satchel.runtime.cli.group import group\n"
        "try:\n    group.main(['status', sys.argv[1]])\nexcept SystemExit as end:\n    assert not end.code\n"
        "loaded = {'fsspec', 's3fs', 'aiobotocore', 'botocore'} & set(sys.modules)\nassert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, stdout=subprocess.DEVNULL)


def test_a_replay_into_a_folder_stumbles_over_the_options_of_its_bucket(
    upload: Upload, cli: Cli, tmp_path: Path
) -> None:
    url = upload(PLAIN)
    assert cli("run", url, "--quiet").exit_code == 0
    found = satchel("replay", url, "^1", "--into", tmp_path / "here", "--storage-option", "use_ssl=false")
    assert found.returncode == 0 and "no difference" in found.stdout, found.stderr
    assert f"satchel resume {tmp_path / 'here'}" in found.stderr
