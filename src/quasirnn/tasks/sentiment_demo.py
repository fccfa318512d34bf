"""The demo's part on sentiment: invented reviews, where the words alone tell little and their order tells all."""

from itertools import pairwise
from pathlib import Path

from quasirnn.data.labelled_corpus import LabelledCorpus, built_in
from quasirnn.data.labelled_corpus import load as load_corpus
from quasirnn.models import bag_of_words
from quasirnn.plots.states import hidden_states
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.demo import Part, Plan, Row, Screen, compare
from quasirnn.tasks.sentiment import SENTIMENT
from quasirnn.tasks.sentiment_text import SentimentOnText
from quasirnn.training.learner import Tick

BAGS = {1: "bag of words", 2: "words and pairs"}
# Reviews among which the example is looked for.
CANDIDATES = 200
# Columns that a line of the example takes.
WIDTH = 92


def demo(folder: Path, plan: Plan, screen: Screen) -> Part:
    found = compare(
        SENTIMENT,
        folder,
        plan,
        screen,
        SentimentOnText,
        lambda model, tick: model.evaluate("test", tick=tick).accuracy,
    )
    with screen.progress("fitting bags of words") as tick:
        rows = bags(tick)
    curves = folder / "sentiment-curves.png"
    draw_curves(found.runs, curves)
    shown, pictures = found.first, [curves]
    with screen.progress("looking for a telling review") as tick:
        text = telling_review(shown, tick)
    if shown.training.settings.cell == "qrnn":
        pictures.append(folder / "sentiment-states.png")
        draw_states(shown, text, pictures[-1])
    followed = shown.classes[-1]
    return Part(
        task=SENTIMENT.name,
        quality="% right",
        explained="unseen reviews given their label",
        unit=SENTIMENT.unit,
        steps=found.steps,
        rows=rows + found.rows,
        again=found.again,
        heading=f"The classifier reads an unseen review word by word; below each, by then, % {followed}:",
        example=word_by_word(shown, text, followed),
        commands=["classify {folder}/sentiment-qrnn --words 'Not exactly a dull story, my brother said.'"],
        run="sentiment-qrnn",
        pictures=pictures,
    )


def bags(tick: Tick) -> list[Row]:
    """What can be told without order: logistic regressions on words, and on words and pairs of neighbours."""
    corpus: LabelledCorpus = load_corpus(min_count=1)
    train, valid, test = ((corpus.splits[part].ids, corpus.splits[part].labels) for part in ("train", "valid", "test"))
    rows = []
    for order, name in BAGS.items():
        model = bag_of_words.fit_best(train, valid, len(corpus.classes), order)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows.append(Row(name, parameters, 100 * bag_of_words.accuracy(model, *test)))
        tick(len(rows), len(BAGS))
    return rows


def telling_review(model: SentimentOnText, tick: Tick) -> str:
    """The unseen review about which the model changes its mind most often, and is right in the end."""
    part = built_in(["test"]).parts["test"]
    telling, most = part.texts[0], -1
    for done, (text, label) in enumerate(zip(part.texts[:CANDIDATES], part.labels[:CANDIDATES], strict=True), 1):
        labels = [read.so_far.label for read in model.words(text)]
        turns = sum(before != after for before, after in pairwise(labels))
        if labels[-1] == label and turns > most:
            telling, most = text, turns
        tick(done, CANDIDATES)
    return telling


def draw_states(model: SentimentOnText, text: str, path: Path) -> None:
    found = model.states(text)
    hidden_states(
        path,
        found.words,
        found.values,
        probability=found.probability,
        probability_name=f"p({found.label})",
        forget=found.forget,
        title="cells of the last layer",
    )


def word_by_word(model: SentimentOnText, text: str, label: str, width: int = WIDTH) -> str:
    """Lines of words, and below each word the label's probability after it, in percent; what it came to at the end."""
    reads = model.words(text)
    lines, words, numbers = [], "", ""
    for read in reads:
        number = f"{100 * read.so_far.probabilities[label]:.0f}"
        column = max(len(read.word), len(number))
        if words and len(words) + column > width:
            lines += [words.rstrip(), numbers.rstrip(), ""]
            words = numbers = ""
        words += f"{read.word:<{column}} "
        numbers += f"{number:<{column}} "
    last = reads[-1].so_far
    return "\n".join([*lines, words.rstrip(), numbers.rstrip(), "", f"{last.label}, {100 * last.probability:.1f} %"])
