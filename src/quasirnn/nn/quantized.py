"""int8 copies of models, for inference on a CPU."""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.nn.layer import QRNNLayer, QRNNLayerOutput
from quasirnn.ops import checks
from quasirnn.ops.quantized import quantize_weight, run_quantized_layer

M = TypeVar("M", bound=nn.Module)


def quantize(model: M, *, linear: bool = False, embedding: bool = False) -> M:
    """A copy whose QRNN layers hold int8 weights, in eval mode: for inference, several times as fast on CPUs with VNNI.

    Every output channel of a weight has a scale, and every window of inputs gets one in the call; gates and cells stay
    float32. `quasirnn.ops.quantized` gives a bound of the error. Everything a layer can do in eval mode works:
    states, lengths, packed sequences, both directions, `state_dict`, `save_pretrained`, `torch.export`.

    Args:
        model: a QRNN, a QRNNLayer, or any module that holds such; in float32.
        linear: `nn.Linear` modules too.
        embedding: `nn.Embedding` modules too, unless they have a `max_norm`: a quarter of the memory, no faster.

    >>> from quasirnn import QRNN
    >>> rnn = quantize(QRNN(8, 16))
    >>> rnn.layers[0].weight.dtype
    torch.int8
    >>> rnn(torch.randn(5, 2, 8))[0].shape
    torch.Size([5, 2, 16])
    """
    if any(isinstance(module, QuantizedQRNNLayer) for module in model.modules()):
        raise ValueError("quantize: the model is already quantised.")
    types = [QRNNLayer] + [nn.Linear] * linear + [nn.Embedding] * embedding
    if not any(type(module) in types for module in model.modules()):
        raise ValueError(f"quantize: {type(model).__name__} has no QRNN layer.")
    others = {p.dtype for m in model.modules() if type(m) in types for p in m.parameters(recurse=False)} - {
        torch.float32
    }
    if others:
        raise TypeError(f"quantize: the weights must be float32, got {sorted(map(str, others))}. model.float()?")
    holder = nn.ModuleList([copy.deepcopy(model)])
    quantize_(holder, linear=linear, embedding=embedding)
    for module in holder.modules():
        # Of a model of ours, at any depth; an attribute of this name elsewhere can be anything.
        config: Any = getattr(module, "config", None)
        if isinstance(config, dict):
            module.config = {**config, "quantized": {"linear": linear, "embedding": embedding}}  # type: ignore[assignment]
    result: Any = holder[0]
    copied: M = result.eval()
    return copied


def quantize_(holder: nn.Module, *, linear: bool, embedding: bool) -> None:
    """Replaces the modules below this one. Shared modules stay shared, and so do tied weights, if all are replaced."""
    forms: dict[type, Any] = {QRNNLayer: QuantizedQRNNLayer}
    forms |= {nn.Linear: QuantizedLinear} if linear else {}
    forms |= {nn.Embedding: QuantizedEmbedding} if embedding else {}

    def can_be_replaced(module: nn.Module) -> bool:
        # An embedding with max_norm changes its vectors where it is read.
        return type(module) in forms and getattr(module, "max_norm", None) is None

    owners: dict[int, list[nn.Module]] = {}
    for module in holder.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(module)
    # A weight with an owner that stays as it is would have to be kept in both forms.
    kept = {key for key, modules in owners.items() if len(modules) > 1 and not all(map(can_be_replaced, modules))}
    made: dict[int, nn.Module] = {}
    taken: Taken = {}
    for parent in list(holder.modules()):
        # Not named_children: it leaves out the second name of a module that has two.
        for name, child in parent._modules.items():
            if child is None:
                continue
            if can_be_replaced(child) and id(child) not in made:
                if type(child) is QRNNLayer:
                    checks.pooling("quantize", child.pooling)
                elif any(id(parameter) in kept for parameter in child.parameters(recurse=False)):
                    continue
                made[id(child)] = forms[type(child)](child, taken)
            if id(child) in made:
                setattr(parent, name, made[id(child)])


def dequantized_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict in float32, with the names of the model that `quantize` was given: a copy to train on.

    >>> from quasirnn import QRNN
    >>> rnn = QRNN(8, 16)
    >>> state = dequantized_state(quantize(rnn))
    >>> state.keys() == rnn.state_dict().keys()
    True
    >>> (state["layers.0.weight"] - rnn.layers[0].weight).abs().max() < 0.01
    tensor(True)
    """
    state = dict(model.state_dict())
    for name, weight in list(state.items()):
        if weight.dtype == torch.int8:
            scale = state.pop(f"{name.removesuffix('weight')}scale")
            state[name] = weight.float() * scale.view(-1, *[1] * (weight.dim() - 1))
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


# By the identity of a float32 weight: its int8 form and scale.
Taken = dict[int, tuple[nn.Parameter, nn.Parameter]]


def _take(module: nn.Module, taken: Taken, weight: Tensor, bias: Tensor | None = None) -> None:
    """The weight in int8, its scale, the bias: parameters without gradient, as code asks parameters for the device.

    The softmax of a language model and its word vectors may be one matrix; a scale for each word serves both.
    """
    if id(weight) not in taken:
        quantized, scale = (nn.Parameter(part, requires_grad=False) for part in quantize_weight(weight))
        taken[id(weight)] = quantized, scale
    own = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
    for name, parameter in zip(("weight", "scale", "bias"), (*taken[id(weight)], own), strict=True):
        module.register_parameter(name, parameter)


class QuantizedQRNNLayer(QRNNLayer):
    """A `QRNNLayer` with an int8 `weight` and its `scale`, (gates * H,); in eval mode only."""

    def __init__(self, layer: QRNNLayer, taken: Taken) -> None:
        nn.Module.__init__(self)
        for name in ("input_size", "hidden_size", "kernel_size", "pooling", "zoneout", "causal", "reverse"):
            setattr(self, name, getattr(layer, name))
        _take(self, taken, layer.weight, layer.bias)
        self.training = False

    scale: Tensor

    @property
    def input_like(self) -> Tensor:
        return self.scale

    def reset_parameters(self) -> None:
        raise RuntimeError(_NO_TRAINING)

    def _run(self, x: Tensor, bias: Tensor | None, c0: Tensor | None, **arguments: Any) -> QRNNLayerOutput:
        if self.training or (torch.is_grad_enabled() and x.requires_grad):
            raise RuntimeError(_NO_TRAINING)
        return run_quantized_layer(x, self.weight, self.scale, bias, c0, **arguments)

    def extra_repr(self) -> str:
        return super().extra_repr() + ", int8"


class QuantizedLinear(nn.Module):
    """`nn.Linear` with an int8 `weight` and its `scale`, (out,)."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, taken: Taken) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        _take(self, taken, linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            raise RuntimeError(_NO_TRAINING)
        rows = x.float().reshape(-1, self.in_features).contiguous()
        out: Tensor = torch.ops.quasirnn.quantized_linear(rows, self.weight, self.scale, self.bias)
        return out.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, int8"


class QuantizedEmbedding(nn.Module):
    """`nn.Embedding` with int8 vectors and a `scale` for each, (V,)."""

    weight: Tensor
    scale: Tensor
    bias: None

    def __init__(self, embedding: nn.Embedding, taken: Taken) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx = embedding.padding_idx
        _take(self, taken, embedding.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.weight).float() * self.scale[tokens].unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, int8"


_NO_TRAINING = (
    "quasirnn: an int8 model is for inference and has no gradients: call eval(), and torch.no_grad() around it. To "
    "train, use the original float32 model."
)
