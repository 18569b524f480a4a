"""The version of this Satchel, for the journal and the command line."""

_VERSION = "0.1.0"
"""As in pyproject.toml; a test compares them. Asking the installed distribution takes 10 ms at each start."""


def version() -> str:
    return _VERSION
