"""Joins a person's plan with the run's."""
