"""`quasirnn.load`: a run folder to an object that works on text."""

from pathlib import Path

import torch

from quasirnn.tasks.language_model_text import LanguageModelOnText
from quasirnn.tasks.run_folder import RunError, open_run
from quasirnn.tasks.sentiment_text import SentimentOnText
from quasirnn.tasks.translation_text import TranslationOnText


def load(
    folder: str | Path, device: str | torch.device = "cpu"
) -> LanguageModelOnText | SentimentOnText | TranslationOnText:
    """The trained model of a run, with its vocabulary.

    A language model's has `.generate`, `.stream`, `.score` and `.evaluate`; that of sentiment `.classify`,
    `.classify_all`, `.words`, `.reader`, `.states` and `.evaluate`; that of translation `.translate`, `.n_best`,
    `.translate_all` and `.evaluate`.

    Raises:
        RunError: the folder is no run, or a file in it is damaged; one line that says which and what to do.
    """
    run = open_run(folder)
    kinds = {kind.task: kind for kind in (LanguageModelOnText, SentimentOnText, TranslationOnText)}
    task = run.task()
    if task not in kinds:
        raise RunError(f"{folder}: is a run of {task}, which this version cannot load.")
    return kinds[task](run, device)
