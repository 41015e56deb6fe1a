"""Help of the shell for commands: options of a project, completion, files that change."""
