"""Files, foreign and own: opening without links, pipes or blocking; file names; scorecards written atomically."""
