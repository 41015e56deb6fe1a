"""Many scorecards: tables, HTML, JUnit, KernelBench's format, comparison of two runs."""
