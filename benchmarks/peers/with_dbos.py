"""DBOS with SQLite: steps of one workflow. As it comes, and with the database switched to a write-ahead log."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from .pairing import Pairing


def steps(folder: Path, pairing: Pairing) -> None:
    _steps(folder, pairing)


def with_wal(folder: Path, pairing: Pairing) -> None:
    with sqlite3.connect(folder / "dbos.sqlite") as database:  # which keeps that
        database.execute("PRAGMA journal_mode=WAL")
    database.close()
    _steps(folder, pairing)


def _steps(folder: Path, pairing: Pairing) -> None:
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS(config={"name": "benchmark", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})

    @DBOS.step()
    def answer(number: int) -> str:
        return pairing.body()

    @DBOS.workflow()
    def calls() -> None:
        for number in range(pairing.total):
            answer(number)

    DBOS.launch()  # continues the work of a killed process
    with SetWorkflowID("benchmark"):
        DBOS.start_workflow(calls).get_result()
    DBOS.destroy()
