"""Where data, models and training meet: one task is one straight program. Knows nothing of the command line."""
