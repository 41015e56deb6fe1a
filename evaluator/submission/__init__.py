"""Submissions as text: extraction, and facts known without running the code."""
