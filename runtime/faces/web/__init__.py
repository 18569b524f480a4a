"""The web page for people who run agents.

command      `satchel page`
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

# mypy: implicit-reexport

from ....workspace import deferred

if not deferred(__name__):
    from .server import Access, make_app
    from .site import Site
