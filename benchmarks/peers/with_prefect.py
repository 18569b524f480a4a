"""Prefect with the server that it starts itself, on SQLite: tasks of one flow, their results kept and found again."""

from __future__ import annotations

import os
from pathlib import Path

from .pairing import Pairing


def configure(folder: Path) -> None:
    """Call it before the first import of Prefect."""
    os.environ |= {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "90",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


def tasks(folder: Path, pairing: Pairing) -> None:
    configure(folder)
    from prefect import flow, task
    from prefect.cache_policies import INPUTS

    @task(persist_result=True, cache_policy=INPUTS)
    def answer(number: int) -> str:
        return pairing.body()

    @flow(persist_result=True)
    def calls() -> None:
        for number in range(pairing.total):
            answer(number)

    calls()
