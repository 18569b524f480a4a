"""Test an agent: `from satchel.testing import assert_survives, call, crash_after, fake_run, rehearse`.

A pytest plugin offers the fixtures `satchel_workspace` and `satchel_run`.
"""

from .runtime.testing import MemoryPartial, Survived, assert_survives, call, crash_after, fake_run, rehearse

__all__ = ["MemoryPartial", "Survived", "assert_survives", "call", "crash_after", "fake_run", "rehearse"]
