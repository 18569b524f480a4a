"""`satchel watch`: runs in a terminal. Reads and acts through `control`, and never runs an agent in this process.

app       `watch`: the application, and how it ends
runs      the screen with all runs below a root
run       the screen of one run; `panes` are its parts, `acting` what a person does there
feed      what is known of one run: it reads in the background
answer    the form for an answer; `forms` has the others
editing   todo.md and state.json in the person's editor
lines     the widgets: a list of any length, and a bar. All text is drawn by them, escaped
words     events and statuses in words
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .app import watch
