"""Readers of other benchmarks' problems: pure functions from texts of files to a reference in KernelBench's form."""
