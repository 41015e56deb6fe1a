"""A grade: request, stages, deadline, outcome and card."""
