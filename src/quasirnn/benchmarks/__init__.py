"""Timing, and the check that what is timed is right. Trains a few steps at most, and keeps nothing of them."""
