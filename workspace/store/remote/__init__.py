"""Storage over a network: one listing is looked at, and what has been read is kept."""
