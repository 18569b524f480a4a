"""A root with runs in several states, made once for each module, and a client of its page in this process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType

import pytest
from api.test_answering import GRANTING
from cli.conftest import PLAIN, cli

import satchel
from satchel.runtime.api import Overview

pytest.importorskip("starlette", reason="the page needs starlette")

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from starlette.testclient import TestClient

from satchel.runtime.faces.web import site as site_module
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site

__all__ = ["cli", "client", "make", "root", "site"]

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)> {{ 7 * 7 }} \u202ereversed'


def make(folder: Path, source: str = PLAIN, extra: str = "") -> satchel.Handle:
    """A workspace of an agent's source, with the name of its folder as the run_id."""
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(source)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}\nagent: agent.py:main\n{extra}")
    return satchel.open(folder)


class _Compiled(BytecodeCache):
    """The templates, by their texts."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Each test has a page of its own. To compile the templates of a page takes ten times as long as to show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_module, "Environment", partial(Environment, bytecode_cache=_Compiled()))
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`letters/spring` waits for an answer, `summer` is completed, `fresh` is new, `typo` has a mistake, and `hostile`
    has hostile text in its plan and question."""
    found = tmp_path_factory.mktemp("root")
    make(found / "letters/spring", GRANTING).run()
    make(found / "summer").run()
    make(found / "fresh")
    (found / "typo").mkdir()
    (found / "typo/workspace.yaml").write_text("format: 1\nrunid: typo\n")
    make(found / "hostile", GRANTING.replace("Grant?", HOSTILE.replace('"', '\\"'))).run()
    return found


@pytest.fixture(scope="module")
def site(root: Path) -> Site:
    return Site(Overview(root))


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[TestClient]:
    with TestClient(make_app(site), base_url="http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found
