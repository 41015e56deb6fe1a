"""The implementation of Warpgrade. Programs import `warpgrade`, which exports what is stable."""
