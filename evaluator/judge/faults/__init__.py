"""Faults of submissions, by the reports of a runner."""
