"""What people see of a grade: the screen, and the line that moves while it is made."""
