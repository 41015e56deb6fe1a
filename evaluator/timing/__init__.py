"""From samples to what is quoted. Pure: values in, values out."""
