"""Submissions: graded by `benchmarks/verdicts/false_alarms.py`, never imported here."""

collect_ignore_glob = ["*/*.py", "*/*/*.py"]
