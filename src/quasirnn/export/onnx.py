"""`quasirnn.onnx.export`: layers and models as ONNX files of standard operators."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from quasirnn.errors import UserError
from quasirnn.export import onnx_layers as layers
from quasirnn.export import onnx_lstm
from quasirnn.export.onnx_graph import Graph
from quasirnn.files import write_bytes
from quasirnn.models import LanguageModel, SequenceClassifier, Translator
from quasirnn.models.recurrent import input_weights
from quasirnn.models.translator_decoder import QRNNDecoder
from quasirnn.models.translator_encoder import QRNNEncoder
from quasirnn.nn import QRNN, QRNNLayer
from quasirnn.nn.quantized import QuantizedEmbedding, QuantizedLinear, QuantizedQRNNLayer

QUANTIZED = (QuantizedEmbedding, QuantizedLinear, QuantizedQRNNLayer)


def export(model: nn.Module, path: str | Path, *, step: bool = False, lengths: bool = False) -> tuple[Path, ...]:
    """Write a QRNN or a model of quasirnn as ONNX, float32, as it is in eval mode. Time and batch stay dynamic.

        file           inputs                                                outputs
        QRNN           input (T, B, D), c_0 [, lengths (B,)]                 output (T, B, dirs * H), h_n, c_n
        classifier     tokens (T, B), lengths (B,)                           logits (B, classes)
        language model tokens (T, B), state                                  logits (T, B, V), next_state
          step=True    token (B,), state                                     logits (B, V), next_state
        translator     PATH.encoder.onnx: source (S, B), lengths (B,)        memory, values, conditioning, state
                       PATH.step.onnx: token (N,), state, memory, values,    log_probabilities (N, V), next_state,
                         lengths, conditioning                                 attention (N, S)

    c_0, c_n and state are c_n of `QRNN`: zeros at first, then what the call before returned; for an LSTM, h and c
    concatenated. A translator on LSTMs has no ONNX form. N is B, or n times B: row b * n + j is then the j-th target of
    source b. With `batch_first` the QRNN's input is (B, T, D).

    Args:
        step: a file for one time step, without a loop; a QRNN's input is then (B, D). Causal, one direction only.
        lengths: a QRNN's file has the input `lengths`.
    Returns:
        The files that were written: one, or the translator's two.
    Raises:
        UserError: the model has no ONNX form.
    """
    path = Path(path)
    files = _files(model, path, step, lengths)
    for file, graph in files.items():
        write_bytes(file, graph.to_bytes())
    return tuple(files)


def _files(model: nn.Module, path: Path, step: bool, lengths: bool) -> dict[Path, Graph]:
    if any(isinstance(module, QUANTIZED) for module in model.modules()):
        raise UserError(
            "this is an int8 copy: export the original model; onnxruntime.quantization.quantize_dynamic(..., "
            "reduce_range=True) makes an int8 file of it."
        )
    poolings = {module.pooling for module in model.modules() if isinstance(module, QRNNLayer)}
    if others := sorted(poolings - {"f", "fo", "ifo"}):
        raise UserError(f"pooling {others[0]!r} is not supported in ONNX; f, fo and ifo are.")
    if lengths and not isinstance(model, QRNN):
        raise UserError("lengths=True is for a QRNN; the file of a model has the inputs it needs.")
    if isinstance(model, QRNN):
        return {path: layer_graph(model, step, lengths)}
    if isinstance(model, SequenceClassifier):
        return {path: _classifier(model, step)}
    if isinstance(model, LanguageModel):
        return {path: _stream(model, step)}
    if isinstance(model, Translator):
        if not isinstance(model.encoder, QRNNEncoder) or not isinstance(model.decoder, QRNNDecoder):
            raise UserError(
                "translators with LSTMs cannot be exported to ONNX: export one with --cell qrnn, or its modules with "
                "torch.onnx.export."
            )
        named = path if path.suffix == ".onnx" else path.with_name(f"{path.name}.onnx")
        return {
            named.with_suffix(".encoder.onnx"): _encoder(model, model.encoder, model.decoder),
            named.with_suffix(".step.onnx"): _decoder_step(model, model.decoder),
        }
    raise UserError(f"{type(model).__name__} cannot be exported to ONNX; QRNN and quasirnn's models can.")


def _state_shape(rnn: nn.Module) -> list[int | str]:
    if not isinstance(rnn, QRNN):
        return [onnx_lstm.num_layers(rnn), "B", 2 * int(input_weights(rnn)[0].shape[0]) // 4]
    return [len(rnn.layers), "B", rnn.hidden_size + rnn.context_width]


def _check_step(rnn: QRNN) -> None:
    if rnn.bidirectional or not rnn.causal:
        raise UserError("a single step needs a causal network of one direction; leave step out.")


def layer_graph(rnn: QRNN, step: bool = False, lengths: bool = False) -> Graph:
    """A QRNN as `export` writes it."""
    graph = Graph("qrnn")
    D, H = rnn.input_size, rnn.hidden_size * rnn.num_directions
    time: list[int | str] = [] if step else (["B", "T"] if rnn.batch_first else ["T", "B"])
    padding = None
    if step:
        _check_step(rnn)
        if lengths:
            raise UserError("a single step has no lengths.")
        x = graph.input("input", "float32", ["B", D])
    else:
        x = graph.input("input", "float32", [*time, D])
        if rnn.batch_first:
            x = graph("Transpose", x, perm=[1, 0, 2])
    state = graph.input("c_0", "float32", _state_shape(rnn))
    if lengths:
        padding = layers.rows(graph, graph.input("lengths", "int64", ["B"]), x)
        x = layers.without_padding(graph, x, padding)
    output, h_n, c_n = layers.qrnn(graph, rnn, x, state, padding, step=step)
    if not step and rnn.batch_first:
        output = graph("Transpose", output, perm=[1, 0, 2])
    graph.output("output", output, "float32", [*(time or ["B"]), H])
    graph.output("h_n", h_n, "float32", [len(rnn.layers), "B", rnn.hidden_size])
    graph.output("c_n", c_n, "float32", _state_shape(rnn))
    return graph


def _recurrent(
    graph: Graph, rnn: nn.Module, x: str, state: str | None, padding: layers.Padding | None, *, step: bool = False
) -> tuple[str, str, str]:
    """output, h_n and the next state of a model's recurrent part."""
    if isinstance(rnn, QRNN):
        return layers.qrnn(graph, rnn, x, state, padding, step=step)
    return onnx_lstm.lstm(graph, rnn, x, state, padding, step=step)


def _classifier(model: SequenceClassifier, step: bool) -> Graph:
    if step:
        raise UserError("a classifier reads whole texts and has no single step.")
    graph = Graph("sequence_classifier")
    tokens = graph.input("tokens", "int64", ["T", "B"])
    lengths = graph.input("lengths", "int64", ["B"])
    padding = layers.rows(graph, lengths, tokens)
    x = layers.without_padding(graph, layers.embedded(graph, model.embedding, tokens), padding)
    h, h_n, _ = _recurrent(graph, model.rnn, x, None, padding)
    steps = graph("CastLike", graph("Unsqueeze", lengths, graph.ints(1)), h)
    readout = graph("Div", graph("ReduceSum", h, graph.ints(0), keepdims=0), steps)
    if model.readout == "max-mean-last":
        largest = graph(
            "ReduceMax", layers.without_padding(graph, h, padding, float("-inf")), graph.ints(0), keepdims=0
        )
        directions = 2 if model.bidirectional else 1
        ends = [graph.cut(h_n, 0, -n, *([1 - n] if n > 1 else [])) for n in range(directions, 0, -1)]
        last = [graph("Squeeze", end, graph.ints(0)) for end in ends]
        readout = graph("Concat", largest, readout, *last, axis=1)
    graph.output("logits", layers.linear(graph, model.output, readout), "float32", ["B", model.output.out_features])
    return graph


def _stream(model: LanguageModel, step: bool) -> Graph:
    if model.document_start is not None:
        raise UserError(
            "this language model resets its state at the start of a document, which its ONNX export does not support."
        )
    graph = Graph("language_model")
    sizes: list[int | str] = ["B"] if step else ["T", "B"]
    tokens = graph.input("token" if step else "tokens", "int64", sizes)
    state = graph.input("state", "float32", _state_shape(model.rnn))
    x = layers.embedded(graph, model.embedding, tokens)
    h, _, next_state = _recurrent(graph, model.rnn, x, state, None, step=step)
    graph.output("logits", layers.linear(graph, model.softmax, h), "float32", [*sizes, model.vocabulary_size])
    graph.output("next_state", next_state, "float32", _state_shape(model.rnn))
    return graph


def _decoder_sizes(decoder: QRNNDecoder) -> tuple[int, int, int]:
    """Layers, H, and columns of a layer's state: cells, and the widest context."""
    parts = layers.stacked(decoder)
    H = parts[0].hidden_size
    return len(parts), H, H + max(part.context_size * part.input_size for part in parts)


def _encoder(model: Translator, encoder: QRNNEncoder, decoder: QRNNDecoder) -> Graph:
    graph = Graph("translator_encoder")
    source = graph.input("source", "int64", ["S", "B"])
    lengths = graph.input("lengths", "int64", ["B"])
    padding = layers.rows(graph, lengths, source)
    x = layers.without_padding(graph, layers.embedded(graph, model.embedding, source), padding)
    count, H, width = _decoder_sizes(decoder)
    conditioning, state = [], []
    for n, part in enumerate(layers.stacked(encoder)):
        values = layers.layer(graph, part, x, None, None, padding)
        x = values.h
        projected = layers.linear(graph, decoder.from_encoder[n], values.h_last)  # type: ignore[arg-type]
        conditioning.append(graph("Unsqueeze", projected, graph.ints(0)))
        if decoder.init_cells and n + 1 < count:
            cells = graph("Pad", values.c_last, graph.ints(0, 0, 0, width - H))
        else:
            cells = graph.zeros(graph.size(lengths, 0), graph.ints(width))
        state.append(graph("Unsqueeze", cells, graph.ints(0)))
    memory = layers.without_padding(graph, values.c if encoder.attend_cells else values.h, padding)
    gates = layers.stacked(decoder)[0].weight.shape[0]
    graph.output("memory", memory, "float32", ["S", "B", H])
    graph.output("values", layers.linear(graph, decoder.attention.from_memory, memory), "float32", ["S", "B", H])
    graph.output("conditioning", graph("Concat", *conditioning, axis=0), "float32", [count, "B", gates])
    graph.output("state", graph("Concat", *state, axis=0), "float32", [count, "B", width])
    return graph


def _decoder_step(model: Translator, decoder: QRNNDecoder) -> Graph:
    graph = Graph("translator_step")
    count, H, width = _decoder_sizes(decoder)
    gates = layers.stacked(decoder)[0].weight.shape[0]
    token = graph.input("token", "int64", ["N"])
    state = graph.input("state", "float32", [count, "N", width])
    memory = graph.input("memory", "float32", ["S", "B", H])
    values = graph.input("values", "float32", ["S", "B", H])
    lengths = graph.input("lengths", "int64", ["B"])
    conditioning = graph.input("conditioning", "float32", [count, "B", gates])

    x = layers.embedded(graph, model.embedding, token)
    states = []
    for n, part in enumerate(layers.stacked(decoder)):
        bias = graph.reshape(graph.cut(conditioning, 0, n, n + 1), -1, gates)
        out = layers.layer_step(graph, part, x, *layers.split_state(graph, part, state, n, width), bias)
        x = out.h
        states.append(layers.join_state(graph, part, out, width))
    h, attention = _attention(graph, decoder, out.c, memory, values, lengths, H)
    h = h if out.o is None else graph("Mul", out.o, h)
    scores = graph("LogSoftmax", layers.linear(graph, model.softmax, h), axis=-1)
    graph.output("log_probabilities", scores, "float32", ["N", model.vocabulary_size])
    graph.output("next_state", graph("Concat", *states, axis=0), "float32", [count, "N", width])
    graph.output("attention", attention, "float32", ["N", "S"])
    return graph


def _attention(
    graph: Graph, decoder: QRNNDecoder, c: str, memory: str, values: str, lengths: str, H: int
) -> tuple[str, str]:
    """W_k k + W_c c, (N, H), and the weights, (N, S): see `models.attention`."""
    groups = graph("Concat", graph.size(lengths, 0), graph.ints(-1, H), axis=0)
    queries = graph("Reshape", c, groups)  # (B, n, H)
    scores = graph("MatMul", queries, graph("Transpose", memory, perm=[1, 2, 0]))  # (B, n, S)
    valid = graph("Transpose", layers.rows(graph, lengths, memory).valid, perm=[1, 2, 0])  # (B, 1, S)
    weights = graph("Softmax", graph("Where", valid, scores, graph.number(float("-inf"))), axis=-1)
    context = graph.reshape(graph("MatMul", weights, graph("Transpose", values, perm=[1, 0, 2])), -1, H)
    flat = graph("Concat", graph.ints(-1), graph.size(memory, 0), axis=0)
    own = layers.linear(graph, decoder.attention.from_state, c)
    return graph("Add", context, own), graph("Reshape", weights, flat)


__all__ = ["export", "layer_graph"]
