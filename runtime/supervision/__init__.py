"""Processes that look after processes."""
