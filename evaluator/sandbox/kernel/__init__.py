"""Linux mechanisms: system calls, seccomp, Landlock, namespaces, privileges, process groups."""
