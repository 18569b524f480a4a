"""`satchel watch`: runs in a terminal. Reads and acts through `api`, and never runs an agent in this process.

command      `satchel watch`: begins the application, and ends it
list_screen  the application, and its screen with all runs below a root
run_screen   the screen of one run, in panes
actions      what a person does to a run
dialogs      what a person is asked: the form for an answer, a confirmation, work to send
feed         what is known of one run: it reads in the background
lines        the widgets: a list of any length, and a bar; and lines in styles. All text is drawn by them, escaped
"""

# mypy: implicit-reexport

from ....workspace import deferred

if not deferred(__name__):
    from .command import watch
