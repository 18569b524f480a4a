"""One item is done again, and its effects only if a person wants it."""

from __future__ import annotations

import asyncio
import json

import pytest
from cli.conftest import Cli, Make

import satchel
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect.load import look

from .test_rewinding import Calls, data, finished, is_sound, made


def test_another_item_is_done_again_or_an_effect(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    calls.clear()
    found = asyncio.run(handle.redo_async("^3"))
    assert (found.item, found.title, [each.call for each in found.effects]) == ("3", "b", ['send("text":"B")'])
    assert is_sound(handle) and data(handle) == before, "the state stays as it is"
    assert handle.resume(main).status == "completed" and calls == ["read b"] and data(handle) == before
    assert is_sound(handle)


def test_effects_have_the_keys_of_the_first(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    keys = {call.split()[2] for call in calls if call.startswith("send")}
    for name in ("3-b", "3", "child/^1"):
        calls.clear()
        assert handle.redo(name, effects=True, dry_run=True).effects and calls == []
        assert handle.redo(name, effects=True).forgotten
        assert handle.resume(main).status == "completed" and data(handle) == before
        (key,) = (call.split()[2] for call in calls if call.startswith("send"))
        assert key not in keys
        keys.add(key)
    handle.rewind(to="^3")
    calls.clear()
    assert handle.resume(main).status == "completed" and made(calls, "send") == [] and is_sound(handle)


def test_an_open_item_keeps_its_steps(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    (seq,) = (row.line.seq for row in handle.log(type="step.completed", item="3") if row.record["step"] == "read")
    handle.rewind(to=seq)
    handle.redo("^3")
    calls.clear()
    assert handle.resume(main).status == "completed" and calls == ["read b", "read c", "read x"]
    assert data(handle) == before


def test_an_item_is_redone_that_has_not_begun(make: Make, cli: Cli) -> None:
    folder = make()
    handle = satchel.open(folder)
    finished(handle, [])
    newest = look(handle.store).moment.seq
    for item in ("^9", "b", "other/^1", ""):
        with pytest.raises(UsageError, match="has begun"):
            handle.redo(item)
    assert look(handle.store).moment.seq == newest
    refused = cli("redo", str(folder), "^3", "--effects", "--json")
    assert refused.exit_code == 2 and "1 effect would be done again" in refused.stdout
    done = cli("redo", str(folder), "^3", "--effects", "--yes", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["forgotten"]
    assert "item 4 ('c') will be done again" in cli("redo", str(folder), "^4").output
