"""Something to try: texts that a model can make sense of, by its task and what it was trained on."""

from quasirnn.data import labelled_corpus, language_corpus, paired_corpus

# Of the built-in corpora, by their names: texts of their kind.
_BUILT_IN = {
    labelled_corpus.BUILT_IN: (
        "Not exactly a dull story.",
        "My sister called the ending superb, and I can't agree.",
        "Everyone said that the plot was weak, but to me it was anything but weak.",
    ),
    language_corpus.BUILT_IN: ("The for statement", "A function is", 'The "with" statement is used to'),
    paired_corpus.BUILT_IN: (
        "der dritte März neunzehnhundertsiebenundachtzig",
        "vierzehn Uhr siebenunddreißig",
        "siebenhundertvierzehntausenddreihundertacht",
    ),
}
_SENTIMENT = (
    "Not a bad film at all.",
    "The music is fine, but its main weakness is the story.",
    "I expected to be bored, and I could not have been more wrong.",
)
_LANGUAGE_MODEL = {"word": ("the company said", "in the first half of the year", ""), "character": ("The ", "In ", "")}
_TRANSLATION = {
    "de": (
        "Ein Mann fährt mit dem Fahrrad durch die Stadt.",
        "Zwei Kinder spielen im Garten.",
        "Eine Frau liest ein Buch.",
    ),
    "en": (
        "A man rides his bicycle through the town.",
        "Two children are playing in the garden.",
        "A woman reads a book.",
    ),
}


def examples(task: str, corpus: str, *, level: str | None = None, source: str | None = None) -> list[str]:
    """A few texts to begin with; none where nothing is known of the language.

    Args:
        corpus: the name of what the model was trained on.
        level: of a language model, word or character.
        source: the language that is translated from.
    """
    if corpus in _BUILT_IN:
        return list(_BUILT_IN[corpus])
    if task == "sentiment":
        return list(_SENTIMENT)
    if task == "language-model":
        return list(_LANGUAGE_MODEL.get(level or "", ()))
    return list(_TRANSLATION.get((source or "").lower(), ()))
