"""onnxruntime on tensors."""

from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor


def session(file: Path) -> Any:
    """A session on one thread, as every test worker has."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def run(session: Any, **inputs: Tensor) -> dict[str, Tensor]:
    """All outputs by name."""
    names = [output.name for output in session.get_outputs()]
    arrays = {name: value.detach().numpy() for name, value in inputs.items()}
    return {name: torch.from_numpy(value) for name, value in zip(names, session.run(names, arrays), strict=True)}
