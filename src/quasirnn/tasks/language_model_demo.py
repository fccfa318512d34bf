"""The demo's part on the language model: the pages behind Python's help("topics"), character by character."""

from pathlib import Path

from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Watch, row, runs_of, train_cells
from quasirnn.tasks.language_model import LANGUAGE_MODEL
from quasirnn.tasks.language_model_text import LanguageModelOnText

PROMPT, LENGTH, TEMPERATURE = "The ", 400, 0.6


def demo(folder: Path, plan: Plan, watch: Watch) -> Part:
    trained = train_cells(LANGUAGE_MODEL, folder, plan, watch)
    models = {cell: LanguageModelOnText(each.run) for cell, each in trained.items()}
    curves = folder / "language-model-curves.png"
    draw_curves(runs_of(trained), curves)
    return Part(
        task=LANGUAGE_MODEL.name,
        quality="bits a character\non unseen pages",
        unit=LANGUAGE_MODEL.unit,
        steps=next(iter(trained.values())).outcome.step,
        rows=[row(cell, trained[cell], model.evaluate("test").bits_per_token) for cell, model in models.items()],
        heading="It writes:",
        example=next(iter(models.values())).generate(PROMPT, LENGTH, temperature=TEMPERATURE, seed=plan.seed),
        commands=["generate {folder}/language-model-qrnn --prompt 'The '"],
        pictures=[curves],
    )
