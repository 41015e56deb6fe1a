"""Worker processes of a batch: the pool, the GPU queue, the messages, and Ray."""
