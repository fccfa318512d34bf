"""The translation task's KEYs and presets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quasirnn.tasks.settings import Preset, TaskSettings, decay_problems, setting


@dataclass(frozen=True, kw_only=True)
class TranslationSettings(TaskSettings):
    """What a translator is trained with, besides what every task has."""

    source: str = setting("de", help="the language to translate from, as the files end", group="data")
    target: str = setting("en", help="the language to translate to", group="data")
    max_length: int | None = setting(
        300, help="leave pairs with a longer side out of training, in characters", group="data", at_least=1
    )
    min_count: int = setting(2, help="read rarer characters as unknown", group="data", at_least=1)
    max_vocabulary: int | None = setting(
        None, help="keep only so many characters, the most frequent", group="data", at_least=5
    )
    lowercase: bool = setting(False, help="put the text in lower case", group="data")

    embedding_size: int | None = setting(
        None, help="size of the characters' vectors; none: hidden_size", group="model", at_least=1, at_most=65_536
    )

    optimizer: Literal["adam", "adamw"] = setting("adamw", help="the rule of the update", group="optimisation")
    weight_decay: float = setting(0.0, help="decoupled, of adamw's matrices", group="optimisation", at_least=0)
    schedule: Literal["constant", "cosine"] = setting(
        "cosine", help="how the learning rate goes on", group="optimisation"
    )
    warm_up: int = setting(0, help="cosine: steps that the rate rises over", group="optimisation", at_least=0)
    sample: int = setting(
        100, help="validation sentences that are translated after each epoch, for BLEU; 0: none", at_least=0
    )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from decay_problems(self, "adam")
        if self.source == self.target:
            yield f"target: must be another language than source={self.source}"


DEMO = Preset(
    "demo",
    TranslationSettings(
        hidden_size=128,
        num_layers=2,
        kernel_size=(6, 2),
        embedding_size=64,
        batch_size=64,
        learning_rate=4e-3,
        warm_up=50,
        clip=1.0,
        epochs=20,
        max_steps=800,
        min_count=1,
        checkpoint_every=200,
    ),
)

PAPER = Preset(
    "paper",
    TranslationSettings(
        hidden_size=320,
        num_layers=4,
        kernel_size=(6, 2, 2, 2),
        pooling="fo",
        dropout=0.0,
        batch_size=16,
        optimizer="adam",
        learning_rate=1e-3,
        schedule="constant",
        clip=5.0,
        epochs=10,
        max_length=300,
        checkpoint_every=500,
    ),
    by_cell={"lstm": {"dropout": 0.2}},
    notes={
        "hidden_size": "paper 3.3",
        "num_layers": "paper 3.3: of the encoder, and of the decoder",
        "kernel_size": "paper 3.3: of the encoder; the decoder's is 2, ours: not said",
        "pooling": "paper 2.1, eq. 8: fo in the last layer of the decoder; ours: fo everywhere",
        "zoneout": "paper 3.3 names none",
        "dropout": "paper 3.3: none for the QRNN, 0.2 for the LSTM",
        "embedding_size": "ours: not said; one for both languages",
        "batch_size": "paper 3.3",
        "optimizer": "paper 3.3: Adam with beta 0.9 and 0.999, epsilon 1e-8",
        "learning_rate": "paper 3.3",
        "schedule": "paper 3.3 names none",
        "clip": "paper 3.3",
        "l2": "paper 3.3: none",
        "epochs": "paper 3.3",
        "max_length": "paper 3.3",
        "min_count": "ours: not said; the paper's vocabulary has 187 characters",
        "sample": "ours: of validation, decoded greedily",
    },
)

# Ours throughout.
FAST = Preset(
    "fast",
    TranslationSettings(
        hidden_size=320,
        num_layers=3,
        kernel_size=(6, 2, 2),
        dropout=0.1,
        batch_size=32,
        learning_rate=2e-3,
        weight_decay=0.01,
        warm_up=500,
        clip=1.0,
        epochs=10,
        precision="bfloat16",
        checkpoint_every=500,
    ),
)

PRESETS = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
