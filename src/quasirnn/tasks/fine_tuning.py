"""Fine-tuning: a run that starts from the weights and the vocabulary of a trained one (`train TASK --from RUN`).

- KEYs that say what the model is and how it reads text are the source's (`settings.setting(kept=...)`); all others are
  those of the preset, `fast` if none is given, with its rule for the size of the data.
- `learning_rate`, unless given, is a third of that of the preset or its rule.
- The vocabulary is the source's. Tokens that the training text has and it lacks are added at its end: those that
  `min_count` and `max_vocabulary` leave, at most as many as there are, or NEW_TOKENS if that is more.
- A new token starts as the mean of all others: then the predictions of a softmax change little, as each new token gets
  at most the share of an average one (by Jensen's inequality). The first steps learn the rest.
- Modules that the task names in `Task.replaced` start anew; every other tensor must fit.

int8 sources are read as float32. The run keeps the weights that it starts from as `initial.safetensors`, so that it can
be resumed without its source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from quasirnn.data.corpus import Part
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import RunError, SettingsError
from quasirnn.files import unique_tensors
from quasirnn.models import pretrained
from quasirnn.nn.quantized import dequantized_state
from quasirnn.tasks import run_folder
from quasirnn.tasks.fitting import fine_tuning_rate
from quasirnn.tasks.registry import task_of
from quasirnn.tasks.run_folder import Run, Training
from quasirnn.tasks.settings import TaskSettings, as_text, changed, kept_keys, parsed_keys

if TYPE_CHECKING:
    from quasirnn.tasks.task import Dataset, Task

# The most tokens that are added to a small vocabulary.
NEW_TOKENS = 10_000


class Start(Protocol):
    """Where a fine-tuned run gets its vocabulary and its first weights from."""

    def vocabulary(self, task: Task[Any], settings: Any, train: Part, notes: list[str]) -> Vocabulary: ...
    def initialise(self, task: Task[Any], model: nn.Module, data: Dataset) -> None: ...


@dataclass(frozen=True)
class Source:
    """A trained run that another one starts from."""

    name: str  # as the user has typed it
    run: Run
    training: Training[Any]

    def settings(
        self, settings: TaskSettings, overrides: Sequence[str], options: Mapping[str, str], cell: str | None
    ) -> TaskSettings:
        """Those of a preset with what is kept of the source.

        Raises:
            SettingsError: every given setting that contradicts the source.
        """
        config, saved = self.run.read_config(), self.training.settings
        values = {key: getattr(saved, key) for key in kept_keys(saved)}
        # The actual value of a setting that refers to another one, such as embedding_size=none.
        values |= {key: config[key] for key in values if config.get(key) is not None}
        kept = changed(settings, {**values, "learning_rate": fine_tuning_rate(settings.learning_rate)})
        given = {"cell": cell} if cell is not None else {}
        given |= parsed_keys(kept, overrides, options)
        wrong = [
            f"{'--cell' if key == 'cell' else key}: {self.name} has {as_text(getattr(kept, key))}, not "
            f"{as_text(given[key])}; leave it out, or train without --from"
            for key in kept_keys(kept, "fixed")
            if key in given and given[key] != getattr(kept, key)
        ]
        if wrong:
            raise SettingsError(sorted(wrong))
        return kept

    def vocabulary(self, task: Task[Any], settings: Any, train: Part, notes: list[str]) -> Vocabulary:
        """The source's, extended by tokens of the training text."""
        old = self.run.read_vocabulary()
        text = task.make_vocabulary(settings, train, [])
        special = set(text.specials.values())
        new = [token for token in text.tokens if token not in old and token not in special]
        most = max(len(old), NEW_TOKENS) if settings.max_vocabulary is None else settings.max_vocabulary - len(old)
        added = new[: max(0, most)]
        left_out = f"; {len(new) - len(added):,} more are left out" if len(added) < len(new) else ""
        notes.append(
            f"vocabulary: the {len(old):,} tokens of {self.name} and {len(added):,} new ones of the training "
            f"text{left_out}"
        )
        return old.extended(added)

    def initialise(self, task: Task[Any], model: nn.Module, data: Dataset) -> None:
        """Copy the source's weights into a model, and record where they are from."""
        old = self.run.read_vocabulary()
        weights = dequantized_state(self.run.load_model(task.model, old))
        replaced = task.replaced(data.facts, self.training.corpus)
        self._copy(weights, model, len(old), len(data.vocabulary), replaced)
        modules = " and ".join(replaced)
        how = f"all but {modules}, which is initialised anew because the labels differ" if replaced else "all of them"
        data.notes.append(f"weights: those of {self.name}, {how}")
        with self.run.weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        added = len(data.vocabulary) - len(old)
        data.facts["init_from"] = {"sha256": digest, "new_tokens": added, "replaced": list(replaced)}

    @torch.no_grad()
    def _copy(
        self, weights: Mapping[str, Tensor], model: nn.Module, old: int, new: int, replaced: Collection[str]
    ) -> None:
        """Tensors of the same shape, and rows of those that have one for each token of the vocabulary."""
        for name, tensor in unique_tensors(model.state_dict(keep_vars=True)).items():
            if any(name.startswith(f"{module}.") for module in replaced):
                continue
            weight = weights.get(name)
            if weight is not None and weight.shape == tensor.shape:
                tensor.copy_(weight)
            elif weight is not None and weight.shape == (old, *tensor.shape[1:]) and len(tensor) == new:
                tensor[:old] = weight
                tensor[old:] = weight.mean(0)
            else:
                has = "no such weights" if weight is None else f"{tuple(weight.shape)}"
                raise RunError(
                    f"{self.run.weights}: {name} must have the shape {tuple(tensor.shape)}, got {has}: the models "
                    f"differ. Use the KEYs of {self.name}, or train without --from."
                )


@dataclass(frozen=True)
class Resumed:
    """A fine-tuned run that is resumed: it no longer needs its source."""

    run: Run
    training: Training[Any]

    def vocabulary(self, task: Task[Any], settings: Any, train: Part, notes: list[str]) -> Vocabulary:
        return self.run.read_vocabulary()

    def initialise(self, task: Task[Any], model: nn.Module, data: Dataset) -> None:
        # A checkpoint, if there is one, replaces these weights.
        pretrained.load_weights(model, self.run.initial)
        data.facts["init_from"] = self.training.corpus.get("init_from")


def open_source(task: Task[Any], name: str) -> Source:
    """The run that --from names.

    Raises:
        RunError: there is none, it is of another task, or it cannot be read.
    """
    run = run_folder.open_run(name)
    if (other := task_of(run).name) != task.name:
        raise RunError(f"--from {name}: is a {other} run, not a {task.name} run.")
    return Source(name, run, run.read_training(task.settings))
