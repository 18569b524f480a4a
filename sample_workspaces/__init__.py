"""Example agents, to run and to look at; `satchel new` copies from here."""
