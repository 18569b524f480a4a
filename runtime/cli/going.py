"""From the first line of a run to the last, in this process: what `run` and `resume` share."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ...workspace.base import SatchelError
from ..supervision.child import EXIT_CODES
from .group import code_of
from .options.place import find
from .render.ending import as_json, as_words
from .render.output import print_json
from .render.progress import watching


def go(
    typed: str | None, *, resuming: bool, for_programs: bool, quiet: bool, with_traceback: bool, is_child: bool,
    **wishes: Any,
) -> int:  # fmt: skip
    """Run the agent and say what came of it. `wishes` are those of `Handle.resume`. Returns the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr) if for_programs else contextlib.nullcontext():
            # What an agent prints is not JSON.
            place = find(typed, is_child=is_child)
            with watching(quiet=quiet) as watch:
                ended = (place.resume if resuming else place.run)(watch=watch, **wishes)
    except SatchelError as error:
        if for_programs and not (is_child and isinstance(error.__cause__, SystemExit)):  # then it is started again
            print_json(refused(error))
        raise
    if for_programs:
        print_json(as_json(ended))
    as_words(ended, place, for_programs=for_programs, quiet=quiet, with_traceback=with_traceback)
    return EXIT_CODES[ended.status]


def refused(error: SatchelError) -> dict[str, object]:
    """What a program gets in place of an outcome."""
    said = {"kind": type(error).__name__, "message": str(error)}
    return {"status": "refused", "exit_code": code_of(error), "error": said}
