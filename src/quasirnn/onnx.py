"""ONNX files of layers and models: `quasirnn.onnx.export(model, "model.onnx")`."""

from quasirnn.export.onnx import export

__all__ = ["export"]
