"""Text, tables and label sheets for a terminal."""
