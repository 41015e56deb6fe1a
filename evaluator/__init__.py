"""The implementation of Warpgrade. Programs import the stable interface from `warpgrade`."""
