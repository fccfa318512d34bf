from quasirnn.data.characters import UNKNOWN, Characters


def test_decode_undoes_encode_and_strangers_become_unknown():
    vocabulary = Characters("a\nb")
    assert len(vocabulary) == 4
    assert vocabulary.decode(vocabulary.encode("ba\nx").tolist()) == f"ba\n{UNKNOWN}"


def test_numbers_depend_on_the_set_of_characters_only():
    assert Characters("abc").symbols == Characters("ccba").symbols
