"""Processes that watch over other processes."""
