"""The schemas themselves: valid, self-contained, and explained to whoever meets them in an editor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from satchel import schemas
from satchel.schemas import names, problems, schema


def subschemas(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            if key not in ("const", "enum", "examples", "discriminator"):
                yield from subschemas(value, f"{path}/{key}")
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield from subschemas(value, f"{path}/{at}")


def registry() -> Registry[Any]:
    return Registry().with_resources((f"{name}.json", DRAFT202012.create_resource(schema(name))) for name in names())


def test_every_file_format_has_its_schema() -> None:
    assert names() == (
        "approval",
        "checkpoint",
        "data",
        "lease",
        "message",
        "moved",
        "partial",
        "pause",
        "record",
        "recovered",
        "running",
        "state",
        "step",
        "workspace",
    )


def test_an_unknown_schema_is_named_in_the_error() -> None:
    with pytest.raises(KeyError, match="lease-of-life"):
        schema("lease-of-life")


@pytest.mark.parametrize("name", names())
def test_schema_is_not_valid_draft_2020_12(name: str) -> None:
    loaded = schema(name)
    Draft202012Validator.check_schema(loaded)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert loaded["$id"] == f"{name}.json", "relative, so that references lead to the files beside it, wherever it lies"
    assert loaded["title"]
    assert loaded["description"]


@pytest.mark.parametrize("name", names())
def test_a_property_without_a_description_leaves_the_editor_mute(name: str) -> None:
    resolver = registry().resolver(base_uri=f"{name}.json")
    for path, node in subschemas(schema(name)):
        if path.endswith(("/properties", "/patternProperties")) and "/if/" not in path:
            for key, value in node.items():
                described = value.get("description") or resolver.lookup(value["$ref"]).contents["description"]
                assert described.endswith((".", ":")) or "(" in described, f"{path}/{key}"


@pytest.mark.parametrize("name", names())
def test_a_reference_that_leads_nowhere(name: str) -> None:
    resolver = registry().resolver(base_uri=f"{name}.json")
    for _, node in subschemas(schema(name)):
        if isinstance(node.get("$ref"), str):
            resolver.lookup(node["$ref"])
        if "discriminator" in node:
            for target in node["discriminator"]["mapping"].values():
                resolver.lookup(target)


@pytest.mark.parametrize("name", names())
def test_an_example_that_its_own_schema_refuses(name: str) -> None:
    for path, node in subschemas(schema(name)):
        for example in node.get("examples", ()) if isinstance(node.get("examples"), list) else ():
            assert Draft202012Validator(node, registry=registry()).is_valid(example), path


def test_discriminator_and_one_of_disagree() -> None:
    """Validators that don't know `discriminator` must come to the same verdict."""
    record = schema("record")
    offered = {branch["$ref"] for branch in record["oneOf"]}
    assert offered == set(record["discriminator"]["mapping"].values())
    for kind, target in record["discriminator"]["mapping"].items():
        of_type = record["$defs"][target.removeprefix("#/$defs/")]["properties"]["type"]
        assert kind == of_type.get("const") or kind in of_type["enum"]


def test_schemas_lie_flat_beside_the_loader() -> None:
    folder = Path(str(schemas.__file__)).parent
    assert {path.stem for path in folder.rglob("*.json")} == set(names())
    for path in folder.glob("*.json"):
        json.loads(path.read_text("utf-8"))


def test_nothing_is_imported_for_a_value_that_is_not_validated() -> None:
    import subprocess
    import sys

    code = "import sys, satchel.schemas; assert not {'jsonschema', 'referencing'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_data_may_be_anything() -> None:
    assert problems("data", [None, {"a": 1}]) == []
