"""What this machine can do for a grade, and what is missing."""
