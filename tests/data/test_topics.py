from quasirnn.data.topics import load, split, without_repeats


def test_the_corpus_is_there_and_held_out_parts_have_their_share():
    topics = load()
    total = len(topics.train) + len(topics.valid) + len(topics.test)
    assert total > 200_000
    for part in (topics.valid, topics.test):
        assert 0.05 < len(part) / total < 0.09


def test_no_paragraph_of_the_held_out_parts_was_seen_in_training():
    topics = load()
    train, valid, test = (
        {paragraph.strip("\n") for paragraph in part.split("\n\n")} - {""}
        for part in (topics.train, topics.valid, topics.test)
    )
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_a_repeated_paragraph_is_kept_where_it_comes_first():
    topics = {"b": "two\n\none\n\nthree\n\nthree", "a": "one\n\ntwo", "c": "two"}
    assert without_repeats(topics) == {"a": "one\n\ntwo", "b": "three"}


def test_the_split_depends_on_names_only():
    topics = {f"topic {number}": f"text {number}" for number in range(100)}
    assert split(topics) == split(dict(reversed(topics.items())))
