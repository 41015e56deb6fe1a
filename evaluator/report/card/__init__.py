"""A scorecard on a screen or as SVG."""
