"""A converted language model, with its vocabulary, as a run folder."""

from __future__ import annotations

from pathlib import Path

from quasirnn.data.text_files import read_lines
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import UserError
from quasirnn.export.convert import convert
from quasirnn.models import LanguageModel
from quasirnn.tasks import run_folder
from quasirnn.tasks.language_model import TASK

# What the other projects call the two tokens that running text needs; fastai begins each text with xxbos.
UNKNOWN, END = ("<unk>", "xxunk"), ("<eos>", "xxbos")
# With which fastai fills its vocabulary up to a multiple of 8, as often as that takes.
FILLER = "xxfake"


def convert_run(file: Path, out: Path, tokens: Path, zoneout: float = 0.0) -> None:
    """Make the run `out` from a state dict and a list of tokens.

    Raises:
        UserError: one of them cannot be used; nothing is made.
    """
    run_folder.check_new(out)
    model = convert(file, zoneout=zoneout)
    assert isinstance(model, LanguageModel)
    vocabulary = _vocabulary(tokens, model.vocabulary_size)
    config = model.config
    # What the other project trained with is not known; `fast` is what a training from here on would begin with.
    names = ("hidden_size", "num_layers", "embedding_size", "pooling", "zoneout", "tied")
    own = {"level": "word", "kernel_size": tuple(config["kernel_size"]), **{name: config[name] for name in names}}
    settings = TASK.presets["fast"].qrnn.model_copy(update=own)
    training = run_folder.Training(TASK.name, "fast", settings, corpus={"name": f"unknown; converted from {file.name}"})
    run = run_folder.create(out, training=training, config=config, vocabulary=vocabulary)
    run.save_model(model)


def _vocabulary(file: Path, size: int) -> Vocabulary:
    # Each needs a name of its own; no text has them.
    tokens = [f"{FILLER}{number}" if line == FILLER else line for number, line in enumerate(read_lines(file))]
    if len(tokens) != size:
        raise UserError(
            f"{file}: has {len(tokens):,} lines, but the model has {size:,} tokens; write one token per line."
        )
    specials = {}
    for role, names in (("unknown", UNKNOWN), ("end", END)):
        there = [name for name in names if name in tokens]
        if not there:
            raise UserError(f"{file}: has none of {' and '.join(names)} for the role {role}.")
        specials[role] = there[0]
    try:
        return Vocabulary("word", tokens, specials)
    except ValueError as error:
        raise UserError(f"{file}: {error}.") from None
