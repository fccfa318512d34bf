"""Models for other programs (ONNX, Hugging Face) and from other programs (old checkpoints)."""
