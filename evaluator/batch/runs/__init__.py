"""Run folders: the manifest, the submissions, the index of cards, results and reports."""
