"""The compilers of this machine: where they are, the flags that a submission may pass, and their messages."""
