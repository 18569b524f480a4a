"""`python -m satchel` is the command `satchel`."""

import gc
import sys


def main() -> None:
    """The entry point of the command line. It first blocks the signals that ask a run to stop, before slow imports. The
    code that later listens for them stops the run cleanly."""
    gc.set_threshold(50_000)  # more than imports make: they leave no garbage, and looking for it takes time
    words = sys.argv[1:]
    if words[:1] in (["run"], ["resume"], ["serve"]):
        import signal

        from .runtime.live import hold

        # A supervisor is asked to stop by SIGTERM; Ctrl-C ends one that has started nothing yet. A child gets both.
        hold(signal.SIGTERM, *([signal.SIGINT] if "--supervised" in words else []))
    from .runtime.cli import main

    try:
        main()
    finally:
        if not {"--supervised", "--in-process"} & {*words}:
            gc.freeze()  # without an agent, nothing has to be found when the interpreter takes itself apart


if __name__ == "__main__":
    main()
