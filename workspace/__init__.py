"""Files: names, formats, storage, journal, plan, state, partials. Runs nothing."""
