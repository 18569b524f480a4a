"""The web page for people who run agents: `satchel page`. It reads by `control/`, and keeps nothing that counts.

app.py       puts the app together from the routes of the modules below
site.py      what all requests share: the runs below the root, and how a template is rendered
reading.py   the pages that read: all runs, one run
past.py      the log, the plan, any moment, differences, origins, messages; files.py shows outputs
live.py      server-sent events: parts of a page when they change
facts.py     what the page of a run shows; values.py shows JSON of any size
acting.py    the forms that act: pause, resume, stop, answer, send
correcting.py  the forms that correct: edit, settle conflicts, rewind, redo, fork
forms.py     what these share; `notes.py` keeps what they have done for the page after them
words.py     facts as words of a page: times, sizes, states
guard.py     around all of it: which requests are let in
server.py    listens, and serves the app with uvicorn
templates/   Jinja2, each value escaped. layout.html is around every page. run/*.html are parts of run.html, which
             live.py sends again; act/*.html are included where a person can act, and need no JavaScript
static/      the style, the script, and htmx with its extension for server-sent events (htmx.LICENSE)

Each module with routes has a function `routes(site)`, which app.py calls. A template gets `site` and `request`; on the
pages of a run also `name` and `run`, and on those of its newest state `standing`. `run_url(name, "events")` is a path
below a run: `/run/NAME/-/events`.

A run is found by its name in the listing of the root. No path of a request is joined to a path of the disk. The policy
of the pages allows neither inline scripts nor inline styles, so templates have none.
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from .app import make_app
    from .server import Access, serve_page
    from .site import Site
