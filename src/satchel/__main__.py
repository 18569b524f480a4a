"""`python -m satchel` is the command `satchel`."""

import sys


def main() -> None:
    """The entry point of the command line. Before anything slow is imported, it lets signals wait that ask a run to
    stop: whoever listens for them later stops it cleanly."""
    words = sys.argv[1:]
    if words[:1] in (["run"], ["resume"], ["serve"]):
        import signal

        from .runtime.engine import hold

        # A supervisor is asked to stop by SIGTERM; Ctrl-C ends one that has started nothing yet. A child gets both.
        hold(signal.SIGTERM, *([signal.SIGINT] if "--supervised" in words else []))
    from .runtime.cli import main

    main()


if __name__ == "__main__":
    main()
