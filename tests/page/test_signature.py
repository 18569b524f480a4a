"""The parameters of an agent, from its source alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from satchel.runtime.faces.web.starting import AgentSignature, signature_of
from satchel.workspace.store import DiskStore

MANY = '''
raise SystemExit("this module was imported")

@agent(state=State)
async def main(run, /, topic, depth: int = 2, *links: str, tone: Literal["plain", "warm"] = "plain",
               share: "float | None" = None, loud=True, to: Optional[datetime] = field(1),
               note: Annotated[str, 7, "What else to know"] = "", **more: int):
    """Find out all about a topic,
    and tell it.

    :param topic: what to read about
    depth (int): how many links to follow
    """
'''


def signature(folder: Path, source: str | bytes, name: str = "main") -> AgentSignature | None:
    (folder / "agent.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    return signature_of(DiskStore(folder), f"agent.py:{name}")


def test_a_parameter_is_another_one(tmp_path: Path) -> None:
    found = signature(tmp_path, MANY)
    assert found is not None and found.about == "Find out all about a topic,\nand tell it."
    assert [(each.name, each.kind, each.annotation, each.default, each.value) for each in found.parameters] == [
        ("topic", "yaml", "", None, UNSET),
        ("depth", "whole", "int", "2", 2),
        ("links", "yaml", "a list of str", "[]", []),
        ("tone", "choice", "Literal['plain', 'warm']", "'plain'", "plain"),
        ("share", "number", "float | None", "None", None),
        ("loud", "truth", "", "True", True),
        ("to", "yaml", "Optional[datetime]", "field(1)", UNSET),
        ("note", "text", "str", "''", ""),
        ("more", "yaml", "a mapping to int", "{}", {}),
    ]
    by_name = {each.name: each for each in found.parameters}
    assert by_name["tone"].options == ("plain", "warm")
    assert by_name["topic"].about == "what to read about"
    assert by_name["depth"].about == "how many links to follow"
    assert by_name["note"].about == "What else to know"


@pytest.mark.parametrize(
    "source",
    [
        "def broken(:",
        b"\xff\xfe\0",
        "main = agent(other)",
        "",
        "(" * 100_000,
        f"async def main(run, x={'-' * 50_000}1): ...",
        "#" * (2 << 20),
    ],
    ids=["syntax", "bytes", "no function", "empty", "deep", "deep default", "large"],
)
def test_a_source_that_does_not_tell_ends_the_page(tmp_path: Path, source: str | bytes) -> None:
    assert signature(tmp_path, source) is None


def test_an_agent_elsewhere_is_imported(tmp_path: Path) -> None:
    assert signature_of(DiskStore(tmp_path), "package.module:main") is None
    assert signature_of(DiskStore(tmp_path), "agent.py:main") is None


def test_the_last_of_two_functions_does_not_count(tmp_path: Path) -> None:
    found = signature(tmp_path, "def main(run, a): ...\nasync def main(run, b): ...\nclass main2: ...\n")
    assert found is not None and [each.name for each in found.parameters] == ["b"]
