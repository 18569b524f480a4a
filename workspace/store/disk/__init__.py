"""A folder of a local disk."""
