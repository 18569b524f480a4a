"""The version of this Satchel, as the journal and the command line give it."""

from functools import cache


@cache
def version() -> str:
    from importlib import metadata  # takes 20 ms to import, and most of Satchel never asks

    try:
        return metadata.version("satchel")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "0+unknown"
