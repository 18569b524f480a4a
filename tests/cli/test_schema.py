"""`schema`: each of them, and in a workspace its agent's own."""

from __future__ import annotations

import pytest

from satchel import schemas

from .conftest import Cli, Make, data_of


@pytest.mark.parametrize("name", schemas.names())
def test_a_schema_is_not_printed(cli: Cli, name: str) -> None:
    assert data_of(cli("schema", name)) == schemas.schema(name)


def test_the_list_forgets_one(cli: Cli) -> None:
    for words in ([], ["--list"]):
        assert [line.split()[0] for line in cli("schema", *words).stdout.splitlines()] == list(schemas.names())
    assert list(data_of(cli("schema", "--list", "--json"))) == list(schemas.names())


def test_a_wrong_name_says_nothing_useful(cli: Cli) -> None:
    result = cli("schema", "wrkspace")
    assert result.exit_code == 2 and "did you mean 'workspace'?" in result.stderr.lower()


def test_the_agents_own_is_not_shown(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from dataclasses import dataclass\nfrom satchel import agent\n@dataclass\nclass State:\n    count: int = 0\n"
    )
    folder = make(source + "@agent(state=State)\nasync def main(run):\n    pass\n")
    monkeypatch.chdir(folder)
    assert data_of(cli("schema", "data")) == schemas.schema("data")
    cli("run")
    assert "count" in str(data_of(cli("schema", "data")))
