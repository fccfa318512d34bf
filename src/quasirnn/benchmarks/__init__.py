"""Timing, and the check that what is timed is right. Knows nothing of training."""
