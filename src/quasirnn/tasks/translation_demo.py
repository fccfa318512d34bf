"""The demo's part on translation: German numbers, dates and times in words to English ones, character by character."""

from pathlib import Path

from quasirnn.plots.attention import attention_weights
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Screen, compare
from quasirnn.tasks.translation import TRANSLATION
from quasirnn.tasks.translation_text import TranslationOnText

SENTENCES = (
    "der dritte März neunzehnhundertsiebenundachtzig",
    "vierzehn Uhr siebenunddreißig",
    "siebenhundertvierzehntausenddreihundertacht",
)


def demo(folder: Path, plan: Plan, screen: Screen) -> Part:
    found = compare(
        TRANSLATION,
        folder,
        plan,
        screen,
        TranslationOnText,
        lambda model, tick: model.evaluate("test", tick=tick, beam=1).exact_match,
    )
    curves, attention = folder / "translation-curves.png", folder / "translation-attention.png"
    draw_curves(found.runs, curves)
    translations = {sentence: found.first.n_best(sentence, 1, attention=True)[0] for sentence in SENTENCES}
    first = translations[SENTENCES[0]]
    end = ["end"] if first.finished else []
    attention_weights(attention, list(SENTENCES[0]), [*first.text, *end], first.attention.numpy())
    return Part(
        task=TRANSLATION.name,
        quality="% exact",
        explained="unseen numbers, dates and times translated to the letter",
        unit=TRANSLATION.unit,
        steps=found.steps,
        rows=found.rows,
        again=found.again,
        heading="The translator says:",
        example="\n".join(f"{sentence}  ->  {translation.text}" for sentence, translation in translations.items()),
        commands=["translate {folder}/translation-qrnn 'der erste Mai zweitausendsechs'"],
        run="translation-qrnn",
        pictures=[curves, attention],
    )
