"""Client of the HTTP service: a grader on another machine."""
