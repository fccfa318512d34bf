"""The demo's part on sentiment: invented reviews, where the words alone tell little and their order tells all."""

from itertools import pairwise
from pathlib import Path

from quasirnn.data.labelled_corpus import LabelledCorpus, built_in
from quasirnn.data.labelled_corpus import load as load_corpus
from quasirnn.models import bag_of_words
from quasirnn.plots.states import hidden_states
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Row, Watch, row, runs_of, train_cells
from quasirnn.tasks.sentiment import SENTIMENT
from quasirnn.tasks.sentiment_text import SentimentOnText

BAGS = {1: "bag of words", 2: "bag of words and pairs"}
# Where an opinion may have turned: the example shows what was thought there.
TURNS = {",", ";", ".", "!", "?"}


def demo(folder: Path, plan: Plan, watch: Watch) -> Part:
    trained = train_cells(SENTIMENT, folder, plan, watch)
    models = {cell: SentimentOnText(each.run) for cell, each in trained.items()}
    rows = bags() + [row(cell, trained[cell], model.evaluate("test").accuracy) for cell, model in models.items()]
    curves, states = folder / "sentiment-curves.png", folder / "sentiment-states.png"
    draw_curves(runs_of(trained), curves)
    shown = next(iter(models.values()))
    text = telling_review(shown)
    pictures = [curves]
    if shown.training.settings.cell == "qrnn":
        found = shown.states(text)
        hidden_states(
            states,
            found.words,
            found.values,
            probability=found.probability,
            probability_name=f"p({found.label})",
            forget=found.forget,
            title="cells of the last layer",
        )
        pictures.append(states)
    return Part(
        task=SENTIMENT.name,
        quality="% of unseen\nreviews right",
        unit=SENTIMENT.unit,
        steps=next(iter(trained.values())).outcome.step,
        rows=rows,
        heading="A review it has not seen, read word by word, with its opinion at every mark:",
        example=annotated(shown, text),
        commands=["classify {folder}/sentiment-qrnn --words 'Not exactly a dull story, my brother said.'"],
        pictures=pictures,
    )


def bags() -> list[Row]:
    """What can be told without order: logistic regressions on words, and on words and pairs of neighbours."""
    corpus: LabelledCorpus = load_corpus(min_count=1)
    train, valid, test = ((corpus.splits[part].ids, corpus.splits[part].labels) for part in ("train", "valid", "test"))
    rows = []
    for order, name in BAGS.items():
        model = bag_of_words.fit_best(train, valid, len(corpus.classes), order)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows.append(Row(name, parameters, 100 * bag_of_words.accuracy(model, *test)))
    return rows


def telling_review(model: SentimentOnText) -> str:
    """The unseen review about which the model changes its mind most often, and is right in the end."""
    part = built_in(["test"]).parts["test"]
    telling, most = part.texts[0], -1
    for text, label in zip(part.texts[:200], part.labels[:200], strict=True):
        labels = [read.so_far.label for read in model.words(text)]
        turns = sum(before != after for before, after in pairwise(labels))
        if labels[-1] == label and turns > most:
            telling, most = text, turns
    return telling


def annotated(model: SentimentOnText, text: str) -> str:
    """The words of a text, and behind every mark what it was taken for so far."""
    parts = []
    for read in model.words(text):
        parts.append(read.word)
        if read.word in TURNS:
            parts.append(f"[{read.so_far.label} {read.so_far.probability:.2f}]")
    return " ".join(parts)
