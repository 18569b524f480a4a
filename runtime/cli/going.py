"""From the first line of a run to the last, in this process: what `run` and `resume` share."""

from __future__ import annotations

import contextlib
import sys
import time

from ...workspace.errors import AgentError, SatchelError, UsageError
from ...workspace.looking import look
from .ending import Ending, as_json, as_words
from .group import code_of
from .output import print_json
from .place import Place, find
from .progress import watching


def go(
    typed: str | None, *, resuming: bool, for_programs: bool, quiet: bool, with_traceback: bool, accept_drift: bool,
    drain_timeout: float | None, from_checkpoint: bool, take_over: bool, adopt: bool, is_child: bool,
) -> int:  # fmt: skip
    """Run the agent and say what came of it. Returns the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr) if for_programs else contextlib.nullcontext():
            # What an agent prints is not JSON.
            place = find(typed, to_run=True, is_child=is_child)
            ending = _run(place, resuming, quiet, accept_drift, drain_timeout, from_checkpoint, take_over, adopt)
    except SatchelError as error:
        if for_programs and not (is_child and isinstance(error.__cause__, SystemExit)):  # then it is started again
            print_json(refused(error))
        raise
    if for_programs:
        print_json(as_json(ending))
    as_words(ending, for_programs=for_programs, quiet=quiet, with_traceback=with_traceback)
    return ending.code


def _run(
    place: Place, resuming: bool, quiet: bool, accept_drift: bool, drain_timeout: float | None,
    from_checkpoint: bool, take_over: bool, adopt: bool,
) -> Ending:  # fmt: skip
    from .. import running

    seen = look(place.store)
    before = seen.moment
    if resuming and before.seq == 0:
        raise UsageError(
            "nothing to resume yet", path=place.store.url, why="this run has never been started",
            remedy=f"start it with `{place.command('run')}`",
        )  # fmt: skip
    began = time.monotonic()
    with watching(quiet=quiet) as watch:
        try:
            outcome = running.run(
                place.store, watch=watch, wake=resuming, accept_drift=accept_drift, drain_timeout=drain_timeout,
                from_checkpoint=from_checkpoint, take_over=take_over, adopt=adopt,
            )  # fmt: skip
        except SystemExit as error:
            raise AgentError(
                f"the agent ended the process (sys.exit({error.code!r}))",
                why="then nothing can be written down any more, as in a crash",
                remedy=f"let it raise an exception or return; `{place.command('resume')}` goes on from its last step",
            ) from error  # fmt: skip
    after = look(place.store, described=seen.definition).moment  # a mistake may be in the file by now
    return Ending(place, outcome, after, after.usage.steps - before.usage.steps, time.monotonic() - began)


def refused(error: SatchelError) -> dict[str, object]:
    """What a program gets in place of an outcome."""
    said = {"kind": type(error).__name__, "message": str(error)}
    return {"status": "refused", "exit_code": code_of(error), "error": said}
