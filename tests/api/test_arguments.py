"""What a caller of the Python API gets wrong is said of the argument, and nothing was begun."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from cli.conftest import Make, contents

import satchel
from satchel import Handle
from satchel.workspace.base.errors import UsageError
from satchel.workspace.store import DiskStore

NO_SECONDS = (-1, "x", float("nan"), float("inf"), True, timedelta(seconds=1))
NO_COUNT = (-1, "x", 1.5, True)
NO_PLACE = (5, b"demo", "a\0b", "", ["demo"])

Call = Callable[[Any], Any]


def refused(call: Call, *wrong: Any, name: str) -> None:
    for value in wrong:
        with pytest.raises(UsageError, match=name) as raised:
            call(value)
        assert raised.value.remedy, value


def _with_drain_timeout(method: Callable[..., Any], value: Any) -> Any:
    return method(drain_timeout=value)


def test_a_number_that_is_none_reaches_a_run_or_a_supervisor(make: Make) -> None:
    handle = satchel.open(folder := make())
    handle.run()
    before = contents(folder)
    for method in (handle.run, handle.resume, handle.supervise, handle.detach, partial(satchel.run, folder)):
        refused(partial(_with_drain_timeout, method), *NO_SECONDS, name="drain_timeout")
    refused(lambda value: satchel.serve(folder, drain_timeout=value), *NO_SECONDS, name="drain_timeout")
    refused(lambda value: satchel.serve(folder, at_most=value), 0, *NO_COUNT, name="at_most")
    refused(lambda value: satchel.open("memory://x", patience=value), *NO_SECONDS, name="patience")
    refused(lambda value: handle.history.log(last=value), *NO_COUNT, name="last")
    refused(lambda value: handle.pause(until=value), timedelta.max, 5, name=r"too far away|not a time")
    assert contents(folder) == before


def test_a_place_that_is_none_is_an_error_from_inside(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(folder := make())
    before = contents(tmp_path)
    refused(cast(Call, satchel.open), *NO_PLACE, name="url")
    for function in (satchel.open_all, satchel.ls, satchel.serve):
        refused(cast(Call, function), *NO_PLACE, name="root")
    refused(lambda value: satchel.new(value, tmp_path / "new"), *NO_PLACE, name="source")
    refused(lambda value: satchel.new("digest", value), *NO_PLACE, name="to")
    refused(handle.copy, *NO_PLACE, name="to")
    refused(handle.move, *NO_PLACE, name="to")
    refused(lambda value: handle.send(Path(value)), "a\0b", name="a file to send")
    refused(lambda value: handle.merge(files=value), 5, b"todo.md", [5], name="not the path of a file")
    refused(cast(Call, satchel.stop_all), folder, str(folder), [folder], 5, name="is no handle")
    assert contents(tmp_path) == before


def test_a_place_whose_name_no_disk_can_hold_is_an_error_of_the_system(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(folder := make())
    before = contents(tmp_path)
    wrong = tmp_path / ("f" * 256), tmp_path / ("日" * 86), tmp_path / ("f" * 256) / "x", tmp_path / "f\ud800"
    for call in (
        handle.copy,
        handle.move,
        handle.history.fork,
        lambda to: satchel.new("digest", to),
        handle.files.export,
    ):
        refused(cast(Call, call), *wrong, name="to can't be")
    for call in (satchel.open, satchel.ls, satchel.open_all, satchel.serve):
        refused(cast(Call, call), *wrong, name="can't be")
    for call in (handle.copy, handle.move, handle.history.fork, lambda to: satchel.new("digest", to)):
        refused(cast(Call, call), tmp_path / "f\udcff", name="not text")
    assert contents(tmp_path) == before and Path(folder).exists()


def test_an_answer_that_is_no_text_is_an_error_from_inside(make: Make) -> None:
    handle = satchel.open(make())
    refused(handle.answer, "\ud800", name="decision")
    refused(lambda value: handle.answer("done", result=value), "\ud800", name="result")


def test_what_is_no_text_function_or_dict_is_an_error_from_inside(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(folder := make())
    before = contents(tmp_path)
    refused(lambda value: handle.run(watch=value), print, 5, name="watch")
    refused(lambda value: handle.check(progress=value), 5, name="progress")
    refused(lambda value: satchel.ls(folder, progress=value), 5, name="progress")
    refused(lambda value: handle.copy(tmp_path / "there", progress=value), 5, name="progress")
    refused(lambda value: handle.copy(tmp_path / "there", by=value), 5, "\ud800", name="by")
    refused(lambda value: satchel.open(folder, tell=value), 5, name="tell")
    refused(lambda value: handle.supervise(tell=value), 5, name="tell")
    refused(lambda value: handle.supervise(should_stop=value), True, name="should_stop")
    refused(lambda value: satchel.new("digest", tmp_path / "new", settings=value), 5, {5: 5}, name="settings")
    refused(lambda value: handle.history.log(item=value), 5, name="item")
    refused(lambda value: handle.history.log(type=value), 5, "step.complete", name="records of type")
    refused(lambda value: handle.send(value), "\ud800", name="a text to send")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("wrong", [{"note": None}, {"by": 5}, {"by": "\ud800"}, {"question": 5}], ids=ascii)
def test_a_wrong_word_of_an_answer_is_an_error_from_inside(make: Make, wrong: dict[str, Any]) -> None:
    refused(lambda _: satchel.open(make()).answer("yes", **wrong), None, name=next(iter(wrong)))


@pytest.mark.parametrize("options", ["x", 5, [1], {1: 2}, {"token": object()}])
def test_storage_options_that_are_none_are_an_error_from_inside_or_shown(make: Make, options: Any) -> None:
    before = dict(os.environ)
    refused(lambda value: satchel.open("memory://x", storage_options=value), options, name="storage_options")
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "options",
    [{"nope": 1}, {"key": 5}, {"client_kwargs": 5}, {"config_kwargs": 5}, {"endpoint_url": 5}, {"profile": "none"}],
    ids=str,
)
def test_an_option_that_s3_does_not_take_is_an_error_from_inside(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    config = pytest.importorskip("fsspec.config")
    monkeypatch.setattr(config, "conf", {})
    monkeypatch.setenv("FSSPEC_S3", "{}")
    given = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"} | options
    refused(lambda value: satchel.open("s3://bucket/x", storage_options=value), given, name=r"settings|storage option")


@pytest.mark.parametrize("options", [["--nope"], ["--help"], ["--detach"], "--quiet", [5], None, 5], ids=str)
def test_a_wrong_option_of_the_supervisor_marks_the_run_as_failed(make: Make, options: Any) -> None:
    handle = satchel.open(folder := make())
    before = contents(folder)
    refused(lambda value: handle.supervise(options=value), options, name="options")
    refused(lambda value: handle.detach(options=value), options, name="options")
    assert contents(folder) == before and handle.status().state == "new"


@pytest.mark.parametrize("call", [Handle.supervise, lambda handle: satchel.serve(handle.url, once=True)])
def test_what_handles_signals_fails_in_another_thread_without_a_way_out(make: Make, call: Call) -> None:
    handle, raised = satchel.open(make()), list[BaseException]()

    def catch() -> None:
        try:
            call(handle)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=catch, name="mine")
    thread.start()
    thread.join()
    (error,) = raised
    assert isinstance(error, UsageError) and "can't be called in the thread 'mine'" in str(error) and error.remedy


def test_the_home_folder_is_a_folder_named_tilde(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    make()
    handle = satchel.open("~/demo")
    assert handle.url == str(tmp_path / "demo") and handle.command("run") == f"satchel run {tmp_path}/demo"
    assert satchel.new("~/demo", "~/new").folder == str(tmp_path / "new")
    assert [each.folder for each in satchel.ls("~")] == [each.url for each in satchel.open_all(Path("~"))]
    assert handle.copy("~/copy").to == str(tmp_path / "copy")
    satchel.serve("~/copy", once=True)
    assert satchel.open("~/copy").status().state == "completed"
    assert satchel.run("file://~/new").status == "completed"
    (tmp_path / "order.md").write_text("Order\n")
    assert len(handle.send(Path("~/order.md"))) == 1
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("typed", [None, "demo", "../demo"])
def test_a_handle_means_another_folder_when_the_current_one_changes(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str | None
) -> None:
    folder = make()
    other = make(name="elsewhere/demo")
    monkeypatch.chdir({None: folder, "demo": tmp_path, "../demo": folder}[typed])
    handle = satchel.open(typed)
    for here in (other, other.parent):
        monkeypatch.chdir(here)
        assert os.path.realpath(shlex.split(handle.command("run"))[2]) == str(folder)
        assert handle.status().url == str(folder)
    before = contents(other)
    if typed is None:
        assert handle.supervise(options=["--quiet"]).status == "completed"
    assert handle.copy("copy").to == str(other.parent / "copy") and contents(other) == before


def test_a_child_that_takes_no_option_counts_as_crashed(make: Make) -> None:
    """Its files may be those of another version by now."""
    from satchel.runtime.supervision import Order, supervise

    words = ["run", "--nope", "--", str(folder := make())]
    before = contents(folder)
    supervisor = supervise(DiskStore(folder), Order(words, words), print)
    assert supervisor.code == 2 and contents(folder) == before


def test_arguments_that_are_no_mapping_reach_an_answer(make: Make) -> None:
    handle = satchel.open(make())
    handle.run()
    refused(lambda value: handle.answer("approve", "a1", arguments=value), [1], "amount=50", name="arguments")
