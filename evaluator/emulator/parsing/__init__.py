"""CUDA C++ of a submission, parsed in a sandboxed process."""
