"""Networks that break, servers that die, and what becomes of runs in a bucket then."""
