"""What the models of `quasirnn.models` give for a few ids."""

from pathlib import Path

import torch

from quasirnn.models import LanguageModel, SequenceClassifier, Translator


def outputs(run: Path, task: str) -> list[float]:
    """All numbers of a forward pass in evaluation mode, two sequences of which one is shorter."""
    ids = torch.tensor([[4, 5], [6, 4], [5, 6], [7, 7]])
    lengths = torch.tensor([4, 2])
    with torch.no_grad():
        if task == "sentiment":
            given = SequenceClassifier.from_pretrained(run)(ids, lengths)
        elif task == "language-model":
            given, state = LanguageModel.from_pretrained(run)(ids[:2])
            given = torch.cat([given.flatten(), *(tensor.flatten() for tensor in state)])
        else:
            given = Translator.from_pretrained(run)(ids, lengths, ids[:3], torch.tensor([3, 2]))
    return given.flatten().tolist()
