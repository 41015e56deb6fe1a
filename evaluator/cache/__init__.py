"""The cache folder: built libraries, measurements, eviction, and the folder used where the disk is full."""
