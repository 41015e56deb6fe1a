"""Diagnosis of this machine: supported devices and missing prerequisites."""
