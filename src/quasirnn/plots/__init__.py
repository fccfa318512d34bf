"""Pictures only: takes arrays and words, writes files. Knows nothing of where the numbers come from."""
