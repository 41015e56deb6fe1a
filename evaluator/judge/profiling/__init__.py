"""Profiles of a correct submission: kernel times, and hardware counters by Nsight Compute."""
