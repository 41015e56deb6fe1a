"""The only code that runs beside a submission. It answers: built, loaded, done, failed. Nobody believes more of it.

This package, `evaluator.frames` and `evaluator.devices.memory` are all that a runner needs of Warpgrade.
"""
