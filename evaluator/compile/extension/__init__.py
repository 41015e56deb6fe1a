"""One extension of a submission: its sources, its compiler run, its errors."""
