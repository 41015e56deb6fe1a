"""Roofline of a problem: bytes and operations of a call, counted on the meta device, and the time to move the bytes."""
