"""The demo's part on translation: German numbers, dates and times in words to English ones, character by character."""

from pathlib import Path

from quasirnn.plots.attention import attention_weights
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Watch, row, runs_of, train_cells
from quasirnn.tasks.translation import TRANSLATION
from quasirnn.tasks.translation_text import TranslationOnText

SENTENCES = (
    "der dritte März neunzehnhundertsiebenundachtzig",
    "vierzehn Uhr siebenunddreißig",
    "siebenhundertvierzehntausenddreihundertacht",
)


def demo(folder: Path, plan: Plan, watch: Watch) -> Part:
    trained = train_cells(TRANSLATION, folder, plan, watch)
    models = {cell: TranslationOnText(each.run) for cell, each in trained.items()}
    curves, attention = folder / "translation-curves.png", folder / "translation-attention.png"
    draw_curves(runs_of(trained), curves)
    shown = next(iter(models.values()))
    found = {sentence: shown.n_best(sentence, 1, attention=True)[0] for sentence in SENTENCES}
    first = found[SENTENCES[0]]
    end = ["end"] if first.finished else []
    attention_weights(attention, list(SENTENCES[0]), [*first.text, *end], first.attention.numpy())
    return Part(
        task=TRANSLATION.name,
        quality="% of unseen texts\ntranslated exactly",
        unit=TRANSLATION.unit,
        steps=next(iter(trained.values())).outcome.step,
        rows=[row(cell, trained[cell], model.evaluate("test", beam=1).exact_match) for cell, model in models.items()],
        heading="It translates:",
        example="\n".join(f"{sentence}  ->  {translation.text}" for sentence, translation in found.items()),
        commands=["translate {folder}/translation-qrnn 'der erste Mai zweitausendsechs'"],
        pictures=[curves, attention],
    )
