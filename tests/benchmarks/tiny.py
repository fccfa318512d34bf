"""Plans that end at once, for tests of everything but the time."""

from quasirnn.benchmarks import decoding, floor, int8, layer, onnx, scale, softmax, step, task, train_step
from quasirnn.benchmarks.timing import Budget

AT_ONCE = Budget(seconds=0.0, min_rounds=2, turn_seconds=0.0)

PLANS = {
    "layer": (layer, layer.Plan((1, 2), (2, 3), 4, AT_ONCE)),
    "floor": (
        floor,
        floor.Plan(floor.grid((1, 2), (2, 3), 4) + floor.variants((3, 4), (1, 2), ("f", "fo"), 2, 3), AT_ONCE, AT_ONCE),
    ),
    "step": (step, step.Plan((step.Model(4, 1), step.Model(4, 2)), AT_ONCE)),
    "int8": (int8, int8.Plan((4, 8), (1, 2), (2, 3), AT_ONCE, AT_ONCE)),
    "scale": (scale, scale.Plan((50, 100), 4, AT_ONCE)),
    "train-step": (train_step, train_step.Plan(AT_ONCE, H=4, vocabulary=11, B=2, T=5)),
    "task": (task, task.Plan(steps=4, warm_up=1, memory_steps=1)),
    "decoding": (
        decoding,
        decoding.Plan((1, 2), (3, 5), AT_ONCE, batch=2, length=5, beam=3, H=4, layers=2, vocabulary=9),
    ),
    "onnx": (onnx, onnx.Plan((1, 2), (2, 3), 4, AT_ONCE)),
    "softmax": (softmax, softmax.Plan(AT_ONCE, (40,), rows=20, vocabulary=11, hidden=8)),
}

# Arguments after the name of a benchmark: the built-in corpus and a tiny model.
ARGUMENTS = {"task": ("language-model", "hidden_size=8", "embedding_size=4", "batch_size=2", "length=5")}
