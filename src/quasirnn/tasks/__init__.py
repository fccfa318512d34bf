"""Where data, models and training meet: a task is one file. Knows nothing of the server."""
