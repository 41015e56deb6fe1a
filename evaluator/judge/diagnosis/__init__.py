"""Likely causes of a wrong answer, named only where all of its values agree with the cause."""
