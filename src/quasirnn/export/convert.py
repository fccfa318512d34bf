"""`quasirnn.convert`: QRNN weights of other projects as ours.

The layers of salesforce/pytorch-qrnn, and fastai's after them, have rows z, f, o, columns [x_t, x_{t-1}], and

    F = sigmoid(W_f [x_t, x_{t-1}] + b_f)     c[t] = F z[t] + (1 - F) c[t-1]

Their F = 1 *writes*. Ours is f = 1 - F = sigmoid(-W_f ...): the rows of f change sign, and the window is turned so
that the oldest input comes first. Language models (salesforce/awd-lstm-lm, fastai's AWD_QRNN) have layers of different
sizes where ours have one: smaller layers get channels that stay zero. Of the two copies that weight drop leaves, the
raw one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from quasirnn.errors import UserError, one_line
from quasirnn.models import LanguageModel
from quasirnn.nn import QRNN, QRNNLayer

STACK = re.compile(r"(?:.*?\.)?(?:rnns|layers)\.(\d+)\.(?:layers\.0\.)?linear\.(?:module\.)?(weight_raw|weight|bias)")
ONE_LAYER = re.compile(r"()linear\.(?:module\.)?(weight_raw|weight|bias)")


class Foreign(NamedTuple):
    """A layer as the other project has it."""

    weight: Tensor  # (gates * H, window * D)
    bias: Tensor  # (gates * H,)


def convert(
    source: str | Path | Mapping[str, Tensor],
    *,
    input_size: int | None = None,
    hidden_size: int | None = None,
    zoneout: float = 0.0,
) -> QRNN | LanguageModel:
    """A `QRNN` or a `LanguageModel` in eval mode, from a state dict of pytorch-qrnn, awd-lstm-lm or fastai.

    Args:
        source: the state dict, or the file that `torch.save(model.state_dict(), file)` wrote. It is read with
            `weights_only=True`: a file that holds a whole model, which is a program, is refused.
        input_size, hidden_size: of bare layers: a state dict does not tell D from the width of the window, nor H from
            the number of gates. Language models need neither.
        zoneout: p, which state dicts do not hold.

    Raises:
        UserError: the file cannot be read, or is none of these models.
    """
    state = _read(Path(source)) if isinstance(source, str | Path) else dict(source)
    layers = _layers(state)
    ends = {name: _ending(state, name) for name in ("encoder.weight", "decoder.weight", "decoder.bias")}
    if ends["encoder.weight"] is not None:
        return _language_model(layers, ends, zoneout)
    if input_size is None or hidden_size is None:
        raise UserError(
            "only layers, without a language model: use quasirnn.convert(FILE, input_size=..., hidden_size=...) in "
            "Python."
        )
    rnn = _stack(layers, input_size, [hidden_size] * len(layers), zoneout)
    return rnn.eval()


def _read(file: Path) -> dict[str, Any]:
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{file}: {one_line(error)}.") from None
    except Exception:
        raise UserError(
            f"{file}: contains more than tensors, perhaps a whole model, which can run code and is not loaded. Where "
            "its code is installed, save: torch.save(model.state_dict(), FILE)."
        ) from None
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]  # fastai saves the optimizer's state beside it
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{file}: is not a state dict.")
    return state


def _layers(state: Mapping[str, Tensor]) -> list[Foreign]:
    parts: dict[int, dict[str, Tensor]] = {}
    stacks: dict[int, set[str]] = {}  # what stands before the names of a layer
    for name, value in state.items():
        if "bwd" in name:
            raise UserError(f"{name}: a bidirectional stack of fastai, which has no counterpart here.")
        if match := STACK.fullmatch(name) or ONE_LAYER.fullmatch(name):
            number = int(match[1] or 0)
            parts.setdefault(number, {})[match[2]] = value.float()
            stacks.setdefault(number, set()).add(name.partition("linear.")[0])
            if len(stacks[number]) > 1:
                both = " and ".join(f"{each}*" for each in sorted(stacks[number]))
                raise UserError(f"several stacks: {both}. Convert one state dict at a time.")
    if not parts or sorted(parts) != list(range(len(parts))):
        raise UserError("contains no QRNN layers: rnns.0.linear.weight, layers.0.linear.weight or linear.weight.")
    layers = []
    for number, part in sorted(parts.items()):
        weight = part.get("weight_raw", part.get("weight"))
        bias = part.get("bias")
        if weight is None or bias is None or weight.dim() != 2 or bias.shape != weight.shape[:1]:
            raise UserError(f"layer {number}: needs linear.weight (gates * H, window * D) and linear.bias (gates * H).")
        layers.append(Foreign(weight, bias))
    return layers


def _ending(state: Mapping[str, Tensor], name: str) -> Tensor | None:
    """A tensor by the end of its name: "0.encoder.weight" in fastai, "encoder.weight" in awd-lstm-lm."""
    names = [each for each in state if each == name or re.fullmatch(rf"\d+\.{re.escape(name)}", each)]
    return state[names[0]].float() if names else None


def _language_model(layers: list[Foreign], ends: Mapping[str, Tensor | None], zoneout: float) -> LanguageModel:
    embedding = ends["encoder.weight"]
    decoder = ends["decoder.weight"]
    assert embedding is not None
    # Without an output layer of its own the model is tied.
    decoder = embedding if decoder is None else decoder
    V, D = embedding.shape
    sizes = [len(layer.bias) // 3 for layer in layers]
    if decoder.shape != (V, sizes[-1]):
        raise UserError(f"the output layer must be (V, H) = ({V}, {sizes[-1]}), got {tuple(decoder.shape)}.")
    rnn = _stack(layers, D, sizes, zoneout)
    tied = torch.equal(decoder, embedding) and max(sizes) == D
    model = LanguageModel(
        V,
        hidden_size=rnn.hidden_size,
        num_layers=len(layers),
        embedding_size=D,
        kernel_size=rnn.kernel_sizes,
        pooling="fo",
        zoneout=zoneout,
        tied=tied,
    )
    bias = ends["decoder.bias"]
    model.rnn.load_state_dict(rnn.state_dict())
    with torch.no_grad():
        model.embedding.weight.copy_(embedding)
        model.softmax.weight.copy_(pad(decoder, (0, rnn.hidden_size - sizes[-1])))
        model.softmax.bias.copy_(torch.zeros(V) if bias is None else bias)
    return model.eval()


def _stack(layers: list[Foreign], input_size: int, sizes: list[int], zoneout: float) -> QRNN:
    """The layers as one QRNN of the largest size."""
    H = max(sizes)
    widths, gates = [], []
    for number, (layer, D, own) in enumerate(zip(layers, [input_size, *sizes], sizes, strict=False)):
        rows, columns = layer.weight.shape
        if columns % D or rows % own or rows // own not in (2, 3):
            raise UserError(
                f"layer {number}: its weight, {(rows, columns)}, is not (gates * H, window * D) for H = {own}, D = {D}."
            )
        widths.append(columns // D)
        gates.append(rows // own)
    if len(set(gates)) > 1:
        raise UserError(f"its layers have different numbers of gates, {gates}.")
    pooling = "f" if gates[0] == 2 else "fo"
    rnn = QRNN(input_size, H, len(layers), kernel_size=widths, pooling=pooling, zoneout=zoneout)
    inputs = [input_size, *sizes]
    for part, layer, D, own in zip(rnn.layers, layers, inputs, sizes, strict=False):
        assert isinstance(part, QRNNLayer)
        signs = torch.tensor([1.0, -1.0, 1.0])[: gates[0], None]
        weight = layer.weight.reshape(gates[0], own, part.kernel_size, D).flip(2) * signs[..., None, None]
        # A channel whose z is zero stays zero, and the next layer multiplies it by zero.
        weight = pad(weight, (0, part.input_size - D, 0, 0, 0, H - own))
        bias = pad(layer.bias.reshape(gates[0], own) * signs, (0, H - own))
        with torch.no_grad():
            part.weight.copy_(weight.reshape(part.weight.shape))
            part.bias.copy_(bias.flatten())
    return rnn
