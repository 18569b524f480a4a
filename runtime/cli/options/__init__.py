"""Options that commands share: the workspace and its storage."""
