"""The directory of accounts: an SQLite file. Opened as a resource, changed only by effects.

Each row holds the key of the effect that has made it, so `verify` recognises its own work.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from settings import read_settings

from satchel import Key, NotDone, Run, effect

_TABLES = """
create table if not exists accounts (account text primary key, name text, address text, key text unique);
create table if not exists privileges (
    account text, privilege text, approved_by text, key text unique, primary key (account, privilege)
);
"""


@contextmanager
def connect(run: Run[Any]) -> Iterator[sqlite3.Connection]:
    """The resource `directory`. Effects use it from threads of their own, one at a time."""
    path = os.path.join(run.folder, os.path.expanduser(read_settings(run.settings).directory))
    with closing(sqlite3.connect(path, check_same_thread=False)) as database:
        database.executescript(_TABLES)
        yield database


def is_sound(database: sqlite3.Connection) -> bool:
    return bool(database.execute("pragma quick_check").fetchone() == ("ok",))


def has_account(account: str, name: str, address: str, key: str, run: Run[Any]) -> str:
    """After a crash: ask the directory whether the row is there."""
    return _ours(run, "select account from accounts where key = ?", key)


@effect(verify=has_account)
def create_account(key: Key, run: Run[Any], account: str, name: str, address: str) -> str:
    return _insert(run, "insert into accounts values (?, ?, ?, ?)", account, name, address, key)


def has_privilege(account: str, privilege: str, approved_by: str, key: str, run: Run[Any]) -> str:
    return _ours(run, "select account from privileges where key = ?", key)


@effect(verify=has_privilege)
def set_privilege(key: Key, run: Run[Any], account: str, privilege: str, approved_by: str) -> str:
    return _insert(run, "insert into privileges values (?, ?, ?, ?)", account, privilege, approved_by, key)


def _ours(run: Run[Any], query: str, key: str) -> str:
    row = run.resources["directory"].execute(query, (key,)).fetchone()
    if row is None:
        raise NotDone("the directory has no such row")
    return str(row[0])


def _insert(run: Run[Any], statement: str, account: str, *values: str) -> str:
    database: sqlite3.Connection = run.resources["directory"]
    try:
        with database:  # a transaction: the row is there wholly, or not at all
            database.execute(statement, (account, *values))
    except sqlite3.IntegrityError as error:
        # Not ours: a row of ours would have been found by its key before this was tried again.
        raise NotDone(f"{account!r} is in the directory already, from elsewhere: {error}") from None
    return account
