"""Runs an agent over a workspace: steps, commits, effects, and the command line. Its face is `satchel` itself."""
