"""Code inside the submission's process, which reports built, loaded, done or failed. No report is trusted.

A runner imports this package, `evaluator.protocol`, `evaluator.errors`, and the memory modules of `evaluator.devices`.
"""
