"""`log`: all that can be read, and then what can't."""

from __future__ import annotations

import json
from pathlib import Path

from satchel.runtime.cli.cmd_log import _TYPES
from satchel.runtime.cli.telling import tell
from satchel.workspace.record import AnyRecord, parse

from .conftest import ASKING, Cli, Make


def test_a_record_is_missing_or_in_disorder(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    lines = cli("log", folder).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert "opened      to run, a new run" in lines[0] and "closed      completed" in lines[-1]
    assert any('step        ^1  shout("text":"say a") -> "SAY A"' in line for line in lines)


def test_json_is_not_what_is_in_the_journal(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (segment,) = (folder / "journal").iterdir()
    assert cli("log", "--json", folder).stdout_bytes == segment.read_bytes()


def test_a_filter_lets_others_through(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    told = [json.loads(row) for row in cli("log", "--json", "--item", "^2", folder).stdout.splitlines()]
    assert {row["scope"] for row in told} == {"2"} and len(told) == 3
    told = [json.loads(row) for row in cli("log", "--json", "--type", "opened", folder).stdout.splitlines()]
    assert [row["type"] for row in told] == ["opened"]
    assert len(cli("log", "-n", "2", folder).stdout.splitlines()) == 2


def test_damage_hides_the_records_around_it(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    segment = _segment(folder)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:2], b"rubbish\n", *lines[3:]]))
    result = cli("log", folder)
    assert result.exit_code == 2 and "line 3 is broken" in result.stderr
    assert len(result.stdout.splitlines()) == len(lines) - 1


def test_a_torn_tail_is_an_error(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    segment = _segment(folder)
    with segment.open("ab") as file:
        file.write(b'{"seq":99,"com')
    result = cli("log", folder)
    assert result.exit_code == 0 and "as a crash leaves it" in result.stderr


def test_a_new_run_has_a_log(make: Make, cli: Cli) -> None:
    result = cli("log", make())
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_record_type_has_no_words(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    cli("resolve", folder, "d1", "--done")
    assert set(_TYPES) == {kind.__struct_config__.tag for kind in AnyRecord.__args__}
    for row in _segment(folder).read_bytes().splitlines():
        assert tell(parse(row).record).text


def _segment(folder: Path) -> Path:
    return min((folder / "journal").iterdir())
