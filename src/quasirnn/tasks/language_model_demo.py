"""The demo's part on the language model: the pages behind Python's help("topics"), character by character."""

from pathlib import Path

from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Screen, compare
from quasirnn.tasks.language_model import LANGUAGE_MODEL
from quasirnn.tasks.language_model_text import LanguageModelOnText

PROMPT, LENGTH, TEMPERATURE = "The ", 400, 0.6


def demo(folder: Path, plan: Plan, screen: Screen) -> Part:
    found = compare(
        LANGUAGE_MODEL,
        folder,
        plan,
        screen,
        LanguageModelOnText,
        lambda model, tick: model.evaluate("test", tick=tick).bits_per_token,
    )
    curves = folder / "language-model-curves.png"
    draw_curves(found.runs, curves)
    return Part(
        task=LANGUAGE_MODEL.name,
        quality="bits/char",
        explained="bits a character of unseen pages, lower is better",
        unit=LANGUAGE_MODEL.unit,
        steps=found.steps,
        rows=found.rows,
        again=found.again,
        heading="The language model writes:",
        example=found.first.generate(PROMPT, LENGTH, temperature=TEMPERATURE, seed=plan.seed),
        commands=["generate {folder}/language-model-qrnn --prompt 'The '"],
        run="language-model-qrnn",
        pictures=[curves],
    )
