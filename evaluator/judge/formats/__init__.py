"""Number formats of few bits: values, places on the number line, and packing. Pure."""
