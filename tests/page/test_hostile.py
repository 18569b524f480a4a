"""Workspaces of strangers attack the page: in a browser no script of theirs runs, and no element of theirs is there."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from properties import ROUNDS

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from satchel.runtime.api import Overview
from satchel.runtime.faces.web.site import Site, run_url

from .chrome import Chrome, Served, Tab, chrome
from .hostile import Hostile

__all__ = ["chrome"]

pytestmark = pytest.mark.slow

WORKSPACES = 104 * min(ROUNDS, 2)  # the list has a second page
STRANGE = """() => {
  const drawn = '.lanes svg, .costs svg, .curve svg, .legend svg, svg.once';
  const ours = (each) => each.matches('script[src^="/static/"], ' + drawn);
  const strange = 'script, iframe, img:not([src^="/run/"]), svg, object, embed, base, style, meta[http-equiv], '
    + 'link:not([href^="/static/"]), '
    + '[onerror], [onload], [onfocus], [ontoggle], [onclick], [srcdoc], [style], a[href^="javascript:" i], '
    + 'a[href^="//"], a[href^="http"]:not([rel="noopener noreferrer nofollow"]), a[href^="data:" i], '
    + 'form[hx-post], [hx-on\\\\:load]';
  const found = [...document.querySelectorAll(strange)].filter((each) => !ours(each)).map((each) => each.outerHTML);
  return [...found, ...(window.hacked ? ["a script has run"] : [])];
}"""

BELOW = (
    ("log",),
    ("at", "latest"),
    ("plan",),
    ("messages",),
    ("files",),
    ("file?path=outputs/1.md",),
    ("file?path=outputs/vector.svg",),
    ("image?path=outputs/vector.svg",),
    ("messages?q=a",),
    ("messages?call=^1/1",),
    ("process",),
    ("time",),
    ("time?of=^1",),
    ("cost",),
    ("call?of=^1/1",),
    ("value?in=result&of=^1/1",),
    ("check",),
    ("blame",),
    ("edit",),
    ("merge",),
    ("back", "3"),
    ("redo", "^1"),
    ("diff",),
    ("compare",),
    ("act", "stop"),
    ("nowhere<script>",),
)


def look(tab: Tab, path: str) -> None:
    tab.go(path)
    assert not (found := tab.do(lambda page: page.evaluate(STRANGE)) + tab.wrong), (path, found)


def test_a_strangers_workspace_runs_a_script(tmp_path: Path, chrome: Chrome) -> None:
    seed = int(os.environ.get("SATCHEL_SEED", "20261124"))
    print("seed", seed)
    hostile = Hostile(tmp_path / "runs", seed)
    for number in range(WORKSPACES):
        hostile.make(number)
    site = Site(Overview(tmp_path / "runs"))
    names = [site.name_of(run) for run in site.runs(patience=None).runs]  # type: ignore[union-attr]
    assert len(names) == WORKSPACES
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        for page in (
            "/",
            "/?page=2",
            "/?state=wanted",
            "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
            "/?state=%22%3E%3Cimg%20src=x%3E",
            "/-/new",
            "/-/stop-all",
            "/-/many?do=pause&all=yes",
            "/-/many?do=%3Cscript%3E",
        ):
            look(tab, page)
        for number, name in enumerate(names):
            look(tab, run_url(name))
            if number % 4 == 0:
                look(tab, f"/-/new?{urlencode({'run': name})}")
                look(tab, f"/-/many?{urlencode([('do', 'compare'), ('run', name), ('run', names[number - 1])])}")
            if number % 2:
                below = BELOW[number // 2 % len(BELOW)]
                look(tab, f"{run_url(name)}/-/{below[0]}" if "?" in below[0] else run_url(name, *below))
