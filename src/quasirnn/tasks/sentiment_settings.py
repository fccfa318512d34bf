"""The sentiment task's KEYs and presets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quasirnn.tasks.settings import Preset, TaskSettings, decay_problems, setting


@dataclass(frozen=True, kw_only=True)
class SentimentSettings(TaskSettings):
    """What a classifier is trained with, besides what every task has."""

    lowercase: bool = setting(False, help="put the text in lower case", group="data")
    max_vocabulary: int | None = setting(
        None, help="keep only so many words, the most frequent", group="data", at_least=3
    )
    min_count: int = setting(2, help="read rarer words as unknown", group="data", at_least=1)
    max_length: int | None = setting(None, help="cut longer texts; none: read them whole", group="data", at_least=1)
    vectors: str | None = setting(None, help="file of word vectors", group="data", option="--vectors")

    embedding_size: int | None = setting(
        None,
        help="size of the word vectors; none: that of --vectors, or 100",
        group="model",
        at_least=1,
        at_most=65_536,
    )
    dense: bool = setting(True, help="every layer sees all layers before it", group="model")
    lstm_start: Literal["uniform", "orthogonal"] | None = setting(
        None, help="uniform: PyTorch's own; orthogonal: with forget gates open", group="model", cells=("lstm",)
    )

    optimizer: Literal["rmsprop", "adamw"] = setting("adamw", help="the rule of the update", group="optimisation")
    weight_decay: float = setting(0.0, help="decoupled, of adamw's matrices", group="optimisation", at_least=0)
    schedule: Literal["constant", "cosine"] = setting(
        "cosine", help="how the learning rate goes on", group="optimisation"
    )
    warm_up: int = setting(0, help="cosine: steps that the rate rises over", group="optimisation", at_least=0)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from decay_problems(self, "rmsprop")


# What the equal LSTM has besides.
LSTM = {"lstm": {"lstm_start": "uniform"}}

DEMO = Preset(
    "demo",
    SentimentSettings(
        hidden_size=64,
        num_layers=2,
        embedding_size=64,
        dropout=0.1,
        batch_size=32,
        learning_rate=6e-3,
        warm_up=50,
        clip=1.0,
        epochs=4,
        max_steps=1200,
        min_count=1,
        checkpoint_every=300,
    ),
    by_cell=LSTM,
)

PAPER = Preset(
    "paper",
    SentimentSettings(
        hidden_size=256,
        num_layers=4,
        kernel_size=2,
        pooling="fo",
        dense=True,
        dropout=0.3,
        batch_size=24,
        optimizer="rmsprop",
        learning_rate=1e-3,
        schedule="constant",
        l2=4e-6,
        epochs=10,
        patience=3,
        checkpoint_every=200,
    ),
    by_cell=LSTM,
    notes={
        "hidden_size": "paper 3.1",
        "num_layers": "paper 3.1",
        "kernel_size": "paper 3.1: width 2 in every layer, or 4 in the first: kernel_size=4,2,2,2",
        "pooling": "ours: the paper does not say which; fo as in its language model",
        "dense": "paper 3.1",
        "dropout": "paper 3.1: between layers; 2.1: and between word vectors and the first layer",
        "zoneout": "paper 3.1 names none",
        "batch_size": "paper 3.1",
        "optimizer": "paper 3.1: RMSprop with alpha 0.9 and epsilon 1e-8",
        "learning_rate": "paper 3.1",
        "schedule": "paper 3.1 names none",
        "l2": "paper 3.1; ours: coupled, on every parameter",
        "clip": "paper 3.1 names none",
        "epochs": "ours: not said",
        "patience": "ours: not said",
        "embedding_size": "that of --vectors; the paper has GloVe of 300, cased",
        "min_count": "ours: not said",
        "max_length": "ours: reviews are read whole",
        "valid": "ours: a tenth of train, by seed; the paper does not say how it chose",
        "lowercase": "ours: words keep their case, and start from the vector of the lower-case word if need be",
    },
)

# Ours throughout.
FAST = Preset(
    "fast",
    SentimentSettings(
        hidden_size=256,
        num_layers=2,
        dropout=0.4,
        zoneout=0.1,
        batch_size=32,
        learning_rate=1e-3,
        weight_decay=0.01,
        warm_up=200,
        clip=1.0,
        epochs=4,
        precision="bfloat16",
        checkpoint_every=200,
    ),
    by_cell=LSTM,
)

PRESETS = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
