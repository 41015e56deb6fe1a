"""One grade: what is asked for, its stages and its time, what came of it, and the card."""
