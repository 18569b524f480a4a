"""`python -m satchel` is the command `satchel`."""

from .runtime.cli import main

main()
