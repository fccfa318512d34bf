"""Files to tensors: corpora, vocabularies, batching. Knows nothing of models."""
