"""Workspaces as the tests of the command line make them, and a handle on each."""

from __future__ import annotations

from cli.conftest import cli, make

__all__ = ["cli", "make"]
