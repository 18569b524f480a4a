"""The conversation of `conversing` with one tool call a turn."""

from killing.conversing import TURNS, subject

SUBJECT = subject(TURNS)
