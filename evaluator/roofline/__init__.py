"""What one call of a problem needs: bytes and arithmetic, counted without memory, and the time to move them."""
