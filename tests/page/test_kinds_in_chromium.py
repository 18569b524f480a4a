"""Each kind of run in a real browser: everyone can read its pages, on a telephone too."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from .chrome import Chrome, Served, chrome
from .kinds import make_kinds, streaming
from .test_reading_in_chromium import OBSTACLES

__all__ = ["chrome"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The URL of their page, and the paths of its pages."""
    root = tmp_path_factory.mktemp("kinds") / "runs"
    make_kinds(root, 2)
    with streaming(root / "stream", 60), Served(str(root)) as served:
        names = sorted(each.name for each in root.iterdir())
        assert len(names) == 13
        below = [f"{name}/-/{tab}" for name in ("stream", "waiting", "sub-agents") for tab in ("time", "messages")]
        yield served.url, ["/", *(f"/run/{quote(each)}" for each in [*names, *below])]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 375)])
def test_a_kind_of_run_has_obstacles(kinds: tuple[str, list[str]], chrome: Chrome, scheme: str, width: int) -> None:
    url, paths = kinds
    with chrome.tab(url, color_scheme=scheme, viewport={"width": width, "height": 800}) as tab:
        for path in paths:
            tab.go(path)
            assert not (found := tab.unfit()), (path, found)
            assert not (found := tab.do(lambda page: page.evaluate(OBSTACLES))), (path, found)
            assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width, path
        assert not tab.wrong
        tab.go("/run/stream")
        tab.until(".call.active", 'write("title":"March")')
        tab.go("/run/stream/-/time")
        assert 'write("title":"March")' in tab.text, "it has a bar, and no record yet"
