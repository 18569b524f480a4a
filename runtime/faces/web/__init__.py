"""Runs over HTTP: the web page for people who run agents, and tasks from other programs.

command      `satchel page`
server       listens, and serves the page with uvicorn: the routes of the modules below, and what an error looks like
site         what all requests share: the runs below the root, how a template is rendered, and notes of what was done
reading      the pages that read: all runs, one run; its log, plan, any moment, differences, origins, messages, outputs
live         server-sent events: parts of a page when they change
facts        what the page of a run shows, and JSON of any size
acting       the forms that act: pause, resume, stop, answer, send; and the page that stops all runs
correcting   the forms that correct: edit, settle conflicts, rewind, redo, fork
forms        what these share
words        facts as words of a page: times, sizes, states
guard        around all of it: which requests are let in
listen       `satchel serve --listen`: tasks that arrive by HTTP
access       where a server listens, its names, the token that requests have to show, and what slows down those who
             guess it; MCP has these, too
templates/   Jinja2, each value escaped. layout.html is around every page. run/*.html are parts of run.html, which
             live.py sends again; act/*.html are included where a person can act, and need no JavaScript
static/      the style, the script, and htmx with its extension for server-sent events (htmx.LICENSE)

Each module with routes has a function `routes(site)`, which server.py calls. A template gets `site` and `request`; on
the pages of a run also `name` and `run`, and on those of its newest state `status`. `run_url(name, "events")` is a
path below a run: `/run/NAME/-/events`.

A run is found by its name in the listing of the root. No path of a request is joined to a path of the disk. The policy
of the pages allows neither inline scripts nor inline styles, so templates have none.
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .access import Address, Guesses, Names, address_of, bound, given_token, is_address, is_bearer, tokens_of
    from .listen import listening
    from .server import Access, make_app, serve_page
    from .site import Site
