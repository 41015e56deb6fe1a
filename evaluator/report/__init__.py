"""Display of a grade: the screen, and the line of progress."""
