"""Verdicts for continuous integration: one line each, annotations of GitHub, SARIF."""
