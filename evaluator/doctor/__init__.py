"""Diagnosis of the machine: supported devices and missing prerequisites."""
