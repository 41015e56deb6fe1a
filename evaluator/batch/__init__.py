"""Batches: read many submissions, distribute them over workers, store the cards, resume after a crash."""
