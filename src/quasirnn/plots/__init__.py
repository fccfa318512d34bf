"""Plots only: takes arrays and strings, writes files. Does not know where the numbers come from."""
