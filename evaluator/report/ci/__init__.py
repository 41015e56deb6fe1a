"""Verdicts for continuous integration: a line for each verdict, annotations of GitHub."""
