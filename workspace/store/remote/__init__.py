"""Storage over a network, with one listing and a cache of what was read."""
