"""The kinds of batches that a service runs, a file each."""
