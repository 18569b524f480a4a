"""`satchel page`: a web page of all runs below a folder, for people who run agents.

server       listens, and serves the page with uvicorn: the routes of the modules below, what an error looks like, and
             around all of it a guard: which requests are let in, and what no answer may do in a browser
site         what all requests share: the runs below the root, notes of what was done, and how a template is rendered
listing      the list of all runs, acts on several of them, and the page that stops all
reading      the pages that read: one run; its log, plan, any moment, origins, calls, time, cost; what two moments or
             two runs differ in; and JSON of any size, folded
contents     what a run contains: conversations, files, images, and JSON of any size, a part at a time
live         server-sent events: parts of a page when they change
starting     the form of a new run, and of the arguments of one that never began; start and resume
forms        the forms of a run: pause, resume, stop, answer, send; edit, settle conflicts, rewind, redo, fork
templates/   Jinja2, each value escaped. layout.html is around every page. run/*.html are parts of run.html, which
             live.py sends again; act/*.html are included where a person can act, and need no JavaScript
static/      the style, the script, and htmx with its extension for server-sent events (htmx.LICENSE)

Each module with routes has a function `routes(site)`, which server.py calls. A template gets `site` and `request`; on
the pages of a run also `name` and `run`, and on those of its newest state `status`. `run_url(name, "events")` is a
path below a run: `/run/NAME/-/events`.

A run is found by its name in the listing of the root. No path of a request is joined to a path of the disk. The policy
of the pages allows neither inline scripts nor inline styles, so templates have none.
"""

from __future__ import annotations

import importlib.util
from typing import BinaryIO

import click

from ....workspace.base import Refused, visible
from ...cli import complete_folders, given, storage_option

_NEEDS = ("starlette", "jinja2", "prometheus_client", "uvicorn")

_EXAMPLES = """\b
Examples:
  satchel page ~/runs
  satchel page ~/runs --open
  satchel page s3://bucket/runs --listen 8080
  satchel page ~/runs --listen unix:/run/user/1000/satchel.sock
  satchel page ~/runs --listen 0.0.0.0:8420 --token-file token

\b
Ctrl-C ends it. The runs continue.
"""


@click.command("page", epilog=_EXAMPLES, short_help="Show all runs under a folder on a web page.")
@click.argument("root", default=".", shell_complete=complete_folders)
@click.option(
    "--listen",
    default="127.0.0.1:8420",
    show_default=True,
    metavar="ADDRESS",
    help="PORT (0: a free one), HOST:PORT or unix:PATH. Where other machines reach it, the page needs a token.",
)
@click.option(
    "--token-file",
    type=click.File("rb"),
    help="A file with the token that opens the page. [default: SATCHEL_PAGE_TOKEN, or none]",
)
@click.option("--name", "names", multiple=True, metavar="HOST", help="Another name that the page is served at.")
@click.option("--open", "opens", is_flag=True, help="Show the page in the browser.")
@storage_option
def command(root: str, listen: str, token_file: BinaryIO | None, names: tuple[str, ...], opens: bool) -> None:
    """Show all runs under ROOT, a folder or URL, on a web page, to look at them and to act on them.

    The page itself runs no code of an agent: what it does, a person could do with the files or a command. Several may
    show the same runs. Killing it loses nothing.
    """
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            f"`satchel page` needs {', '.join(missing)}", remedy="install it with `pip install 'satchel[page]'`"
        )
    from ..http import address_of, given_token
    from .server import Access, serve_page

    token = given_token("SATCHEL_PAGE_TOKEN", token_file)
    serve_page(
        root,
        Access(address_of(listen), token.strip(), names),
        tell=lambda url: click.echo(f"the page of {visible(root)} is at {visible(url)}", err=True),
        opens=opens,
        storage_options=given(),
    )
