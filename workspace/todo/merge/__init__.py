"""Merge a person's plan with the run's."""
