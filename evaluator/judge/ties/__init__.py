"""Integers and booleans at ties."""
