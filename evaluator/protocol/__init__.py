"""Protocol between judge and runner: socket frames, model seeding and calls, and build requests.

A submission's process loads the package, so the package holds no judge state and imports no judge module.
"""
