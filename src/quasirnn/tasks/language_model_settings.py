"""The language model's KEYs and presets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quasirnn.tasks.settings import Preset, TaskSettings, decay_problems, setting


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(TaskSettings):
    """What a language model is trained with, besides what every task has."""

    level: Literal["word", "character"] = setting("word", help="what a token is", group="data")
    lowercase: bool = setting(False, help="put the text in lower case", group="data")
    max_vocabulary: int | None = setting(
        None, help="keep only so many tokens, the most frequent", group="data", at_least=3
    )
    min_count: int | None = setting(
        None, help="read rarer tokens as unknown; none: 2 for words if the text has no <unk>", group="data", at_least=1
    )

    embedding_size: int | None = setting(
        None, help="size of the word vectors; none: hidden_size", group="model", at_least=1, at_most=65_536
    )
    tied: bool = setting(False, help="softmax and word vectors share their weight", group="model")
    output_dropout: float = setting(0.0, help="share dropped before the softmax", group="model", at_least=0, below=1)
    word_scale: float = setting(0.1, help="deviation of the word vectors at the start", group="model", above=0)
    gates_start: Literal["usual", "unit", "small"] = setting(
        "usual",
        help="the layers' weights: as the layer itself has them; so that gates see unit variance; or within 0.05",
        group="model",
    )
    gate_bias: bool = setting(True, help="biases inside the recurrent layers", group="model")
    unigram_start: bool = setting(
        False, help="the softmax' bias starts at the log frequency of each token", group="model"
    )

    length: int = setting(
        105, help="steps of a window: the gradient goes no further back", group="optimisation", at_least=1
    )
    loss_scale: float = setting(
        1.0, help="the gradient is that of loss_scale times the mean over tokens", group="optimisation", above=0
    )
    optimizer: Literal["sgd", "adamw"] = setting("adamw", help="sgd is without momentum", group="optimisation")
    weight_decay: float = setting(0.0, help="decoupled, of adamw's matrices", group="optimisation", at_least=0)
    schedule: Literal["constant", "hold-decay", "cosine"] = setting(
        "cosine", help="how the learning rate goes on", group="optimisation"
    )
    hold_epochs: int = setting(6, help="hold-decay: epochs at the full rate", group="optimisation", at_least=0)
    decay: float = setting(
        0.95, help="hold-decay: factor for each later epoch", group="optimisation", above=0, at_most=1
    )
    warm_up: int = setting(0, help="cosine: steps that the rate rises over", group="optimisation", at_least=0)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tied and self.embedding_size not in (None, self.hidden_size):
            yield f"embedding_size: with tied=true it is hidden_size={self.hidden_size}, got {self.embedding_size}"
        yield from decay_problems(self, "sgd")


DEMO = Preset(
    "demo",
    LanguageModelSettings(
        level="character",
        hidden_size=192,
        num_layers=2,
        embedding_size=64,
        dropout=0.1,
        batch_size=16,
        length=96,
        learning_rate=6e-3,
        clip=1.0,
        warm_up=20,
        epochs=12,
        max_steps=1000,
        checkpoint_every=200,
        # With the layers' own start the LSTM learns nothing within these steps, and the QRNN less.
        gates_start="unit",
    ),
)

PAPER = Preset(
    "paper",
    LanguageModelSettings(
        level="word",
        hidden_size=640,
        num_layers=2,
        kernel_size=2,
        pooling="fo",
        zoneout=0.1,
        dropout=0.5,
        output_dropout=0.0,
        gate_bias=False,
        gates_start="unit",
        word_scale=0.1,
        unigram_start=True,
        batch_size=20,
        length=105,
        optimizer="sgd",
        learning_rate=1.0,
        schedule="hold-decay",
        hold_epochs=6,
        decay=0.95,
        epochs=72,
        l2=2e-4,
        clip=10.0,
        loss_scale=20.0,
        checkpoint_every=100,
    ),
    by_cell={"lstm": {"gate_bias": True}},
    notes={
        "level": "paper 3.2: the words of the Penn Treebank",
        "hidden_size": "paper 3.2",
        "num_layers": "paper 3.2",
        "kernel_size": "paper 3.2: width of two timesteps, both layers",
        "pooling": "paper 3.2: a gated QRNN, eq. 4",
        "zoneout": "paper 3.2: 0.1 on the forget gates, not rescaled",
        "dropout": "paper table 2: 0.5 on embeddings and between layers",
        "output_dropout": "ours: the paper names none before the softmax",
        "embedding_size": "ours: hidden_size, which gives the paper's 18M parameters",
        "tied": "ours: untied, which gives the paper's 18M parameters",
        "word_scale": "ours: not said",
        "gates_start": "ours: not said",
        "gate_bias": "paper eq. 1 has none; with it SGD at rate 1 diverges (docs/decisions)",
        "unigram_start": "ours: not said",
        "batch_size": "paper figure 4: a batch of 20 examples",
        "length": "paper figure 4: 105 timesteps",
        "optimizer": "paper 3.2: SGD without momentum",
        "learning_rate": "paper 3.2",
        "schedule": "paper 3.2: six epochs, then decayed by 0.95 for each subsequent one",
        "hold_epochs": "paper 3.2",
        "decay": "paper 3.2",
        "epochs": "paper 3.2",
        "l2": "paper 3.2; ours: coupled, on every parameter, before clipping",
        "clip": "paper 3.2: gradients with norm above 10 are rescaled",
        "loss_scale": "ours: the loss is summed over the 20 streams and averaged over the 105 steps (docs/decisions)",
        "patience": "paper 3.2: early stopping without zoneout; the best model is kept anyway",
    },
)

# Ours throughout: tied word vectors, AdamW, dropout on all sides, many small steps, half the bits where that is faster.
FAST = Preset(
    "fast",
    LanguageModelSettings(
        level="word",
        hidden_size=640,
        num_layers=2,
        zoneout=0.1,
        dropout=0.4,
        output_dropout=0.4,
        tied=True,
        batch_size=20,
        length=35,
        optimizer="adamw",
        learning_rate=2e-3,
        weight_decay=0.02,
        schedule="cosine",
        warm_up=400,
        epochs=5,
        clip=1.0,
        precision="bfloat16",
        checkpoint_every=500,
    ),
    # An LSTM whose gates see next to nothing at the start does not begin to learn.
    by_cell={"lstm": {"gates_start": "unit"}},
)

PRESETS = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
