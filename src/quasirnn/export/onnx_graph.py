"""An ONNX graph under construction: a thin layer over `onnx.helper` in which a value is its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.errors import MissingPackageError

if TYPE_CHECKING:
    import torch

# Understood by every onnxruntime since 1.14 (2023).
OPSET, IR_VERSION = 18, 8
END = 2**63 - 1

Size = int | str  # a number, or the name of a size that the caller chooses


def onnx_package() -> Any:
    """The package `onnx`; MissingPackageError if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise MissingPackageError("an ONNX file needs onnx: pip install 'quasirnn[onnx]'") from None
    return onnx


class Graph:
    """Nodes, constants, inputs and outputs: `graph("Add", x, y)` adds a node and gives the name of its output."""

    def __init__(self, name: str) -> None:
        self._onnx = onnx_package()
        self.name = name
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._count = 0

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; its only output."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        names = [self._new_name(operator.lower()) for _ in range(outputs)]
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def input(self, name: str, dtype: str, shape: Sequence[Size]) -> str:
        self._inputs.append(self._value(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: str, shape: Sequence[Size]) -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, dtype, shape))

    def constant(self, value: Any) -> str:
        """A small constant, or the array of a weight; equal ones are stored once."""
        array = np.ascontiguousarray(value)
        array = array.reshape(np.shape(value))  # ascontiguousarray makes a vector of a number
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name = self._new_name("constant")
            self._initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return self._constants[key]

    def weight(self, tensor: torch.Tensor) -> str:
        """A tensor of a model, as float32."""
        return self.constant(tensor.detach().cpu().float().numpy())

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def cut(self, x: str, axis: int, start: int, end: int = END) -> str:
        """x[start:end] along an axis."""
        return self("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def reshape(self, x: str, *shape: int) -> str:
        """As numpy's, but 0 keeps the size that x has there."""
        return self("Reshape", x, self.ints(*shape))

    def size(self, x: str, axis: int) -> str:
        """The size along an axis, as a vector of one."""
        return self("Shape", x, start=axis, end=axis + 1)

    def zeros(self, *sizes: str) -> str:
        """Zeros; every size is a vector of one."""
        zero = self._onnx.numpy_helper.from_array(np.zeros(1, np.float32))
        return self("ConstantOfShape", self("Concat", *sizes, axis=0), value=zero)

    def body(self) -> Any:
        """The graph as the body of an operator."""
        return self._onnx.helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._initializers)

    def to_bytes(self, **metadata: str) -> bytes:
        """The model file, checked."""
        helper = self._onnx.helper
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(self.body(), opset_imports=[opset], ir_version=IR_VERSION, producer_name="quasirnn")
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString()
        return data

    def _value(self, name: str, dtype: str, shape: Sequence[Size]) -> Any:
        types = {"float32": self._onnx.TensorProto.FLOAT, "int64": self._onnx.TensorProto.INT64}
        return self._onnx.helper.make_tensor_value_info(name, types[dtype], list(shape))

    def _new_name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"
