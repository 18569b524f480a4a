"""The first run of a workspace in a bucket, whose journal begins with a fence and not with an opening."""

from __future__ import annotations

from unittest import mock

import pytest
from servers import Server

from faults.working import Machine, World
from satchel.workspace.base.errors import Refused
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Remark
from satchel.workspace.lifecycle import opening


class Killed(BaseException):
    """As a kill, for the code that it comes to."""


def test_a_first_run_says_that_files_were_missing(machines: list[Machine]) -> None:
    machine = machines[0]
    machine.run(World().agent())
    assert machine.is_completed
    assert machine.outcome.report.remarks == [Remark("found", "a new run")]
    assert look(machine.store).moment.run_nonce


def test_a_run_whose_first_process_died_behind_its_fence_is_taken_for_begun(
    seaweedfs: Server, prefix: str, machines: list[Machine]
) -> None:
    """It has no nonce yet, so every run of that id would have the same keys of effects."""
    first, second = machines
    with mock.patch.object(opening, "_record_opening", side_effect=Killed), pytest.raises(Killed):
        first.run(World().agent())
    assert look(first.store).moment.seq == 1 and look(first.store).moment.is_new
    second.run(World().agent())
    assert second.is_completed and second.outcome.report.remarks == [Remark("found", "a new run")]
    assert look(second.store).moment.run_nonce


def test_a_state_that_a_person_has_made_before_the_first_run_is_taken(machines: list[Machine]) -> None:
    machine = machines[0]
    machine.store.create("state.json", b'{"data": {}}')
    machine.run(World().agent())
    assert isinstance(machine.error, Refused) and "exists before the first run" in str(machine.error)
