"""Conclusions from finished scorecards: consistency, regrading, comparison with a replay."""
