"""Workspaces as the tests of the command line make them, and a handle on each."""

from __future__ import annotations

from cli.conftest import _nobody_is_saving, cli, make

__all__ = ["_nobody_is_saving", "cli", "make"]
