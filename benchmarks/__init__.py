"""How fast Satchel is, and how much disk it takes. `python -m benchmarks` prints the table; README.md explains it."""
