"""Judgement of an answer: checks of its memory, comparison, evidence, and likely causes of a wrong one."""
