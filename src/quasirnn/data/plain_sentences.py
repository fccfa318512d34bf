"""Sixty plain sentences with labels, such as people type first, to test a model of the built-in reviews.

None of them occurs in any part of the corpus.
"""

SENTENCES = {
    "pos": """
        I loved this film.
        The acting is wonderful.
        Not a bad film at all.
        I really enjoyed it.
        What a great movie!
        This is a good film.
        I was not bored.
        It was great.
        The story is beautiful and the music is lovely.
        I would watch it again.
        I liked the ending.
        One of the best films I have ever seen.
        Very funny.
        I can only recommend it.
        The actors were excellent.
        A wonderful book.
        I couldn't stop reading.
        It isn't bad.
        Not boring at all.
        I had a good time.
        Great story, great acting.
        It made me laugh and cry.
        I adored the characters.
        This was far from dull.
        I was deeply moved.
        Everyone should see this movie.
        The plot is clever.
        I thought it would be terrible, but it was great.
        An excellent series.
        I loved every scene.
    """,
    "neg": """
        I was bored.
        I hated this film.
        The acting is terrible.
        Not a good film.
        I did not like it.
        What a waste of my time.
        This is a bad movie.
        I fell asleep after ten minutes.
        It was awful.
        The story is dull and the music is annoying.
        I would not watch it again.
        I didn't enjoy the ending.
        One of the worst films I have ever seen.
        Very boring.
        I can't recommend it to anyone.
        The actors were dreadful.
        A terrible book.
        I could not finish the book.
        It isn't good.
        Not funny at all.
        I had a bad time.
        Weak story, weak acting.
        It made me angry and tired.
        I disliked the characters.
        This was far from great.
        I was very disappointed.
        Nobody should see this movie.
        The plot is stupid.
        I thought it would be great, but it was terrible.
        I want my money back!
    """,
}
EXPECTED = [(line.strip(), label) for label, text in SENTENCES.items() for line in text.strip().split("\n")]


def bare(sentence: str) -> str:
    """A sentence without its end, and without regard to case."""
    return sentence.rstrip(".!").lower()


KEPT_OUT = frozenset(bare(sentence) for sentence, _ in EXPECTED)
