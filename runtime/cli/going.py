"""A run in this process from its first line to its last: what `run` and `resume` share."""

from __future__ import annotations

import contextlib
import gc
import sys

from ..control import Ended  # with all that a run needs, before `gc.freeze`
from ..supervision.child import EXIT_CODES, RESTARTS
from .options.place import find
from .options.wish import Command, Wish
from .render.ending import as_json, as_words
from .render.output import print_json
from .render.progress import watching


def go(command: Command, wish: Wish) -> int:
    """Run the agent and print the outcome. Returns the exit code."""
    for_programs = wish.as_json
    with contextlib.redirect_stdout(sys.stderr) if for_programs else contextlib.nullcontext():
        # What an agent prints is not JSON.
        place = find(wish.workspace, is_child=wish.is_supervised)
        if wish.is_supervised:
            gc.freeze()  # from now on the collector looks at what the agent makes, and at nothing else
        with watching(quiet=wish.quiet) as watch:
            ended: Ended = (place.resume if command == "resume" else place.run)(watch=watch, **wish.how(command))
    if ended.restarts:
        return RESTARTS
    if for_programs:
        print_json(as_json(ended))
    as_words(ended, place, for_programs=for_programs, quiet=wish.quiet, with_traceback=wish.traceback)
    return EXIT_CODES[ended.status]
