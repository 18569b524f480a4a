"""What commands share of their command lines: the workspace and its storage."""
