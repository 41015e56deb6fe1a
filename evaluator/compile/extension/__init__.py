"""An extension of a submission: sources, compiler run, errors."""
