"""Files: names, formats, storage, journal, plan, state, readable files. Runs nothing."""
