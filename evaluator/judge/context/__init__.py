"""Shared state of the stages of one grade: the reference, the runners, the reference's timing."""
