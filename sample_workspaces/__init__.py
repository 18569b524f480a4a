"""Sample agents, to run and to read; `satchel new` copies from here."""
