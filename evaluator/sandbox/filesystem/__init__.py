"""Files of a runner: what is visible, mounts, scratch folders, folders written by untrusted code."""
