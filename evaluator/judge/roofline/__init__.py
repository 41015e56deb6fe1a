"""The roofline of a problem on this GPU: required traffic, measured peaks, and the check against them."""
