"""The only code that runs beside a submission. It answers: built, loaded, done, failed. Nobody believes more of it.

A runner needs this package, `evaluator.protocol`, the memory of `evaluator.devices` and `evaluator.errors`.
"""
