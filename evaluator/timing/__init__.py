"""Statistics from samples to a quoted speedup. Pure: values in, values out."""
