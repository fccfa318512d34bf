"""Importing this registers our models with Hugging Face transformers: `AutoModelForCausalLM.from_pretrained(RUN)`."""

from quasirnn.export.hf import QuasiRNNConfig, QuasiRNNForCausalLM, QuasiRNNForSequenceClassification, tokenizer

__all__ = ["QuasiRNNConfig", "QuasiRNNForCausalLM", "QuasiRNNForSequenceClassification", "tokenizer"]
