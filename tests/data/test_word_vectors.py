import pytest
import torch

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.data.word_vectors import load
from quasirnn.tasks.sentiment import SPECIALS

WORDS = ["The", "the", "film", "n't", "IMDb"]
VOCABULARY = Vocabulary("word", [*WORDS, "<pad>", "<unk>"], SPECIALS, tokeniser="review")


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "vectors.txt").write_text(text, encoding="utf-8")
        return tmp_path / "vectors.txt"

    return write


def test_an_uncased_file_is_asked_in_lower_case(file):
    path = file("the 1 2\nfilm 3 4\nimdb 5 6\nother 7 8\n")
    found = load(path, VOCABULARY, token_counts=torch.tensor([2, 5, 1, 1, 0, 0, 1]))
    assert found.uncased
    assert found.in_file.tolist() == [True, True, True, False, True, False, False]
    assert found.vectors[found.in_file].tolist() == [[1, 2], [1, 2], [3, 4], [5, 6]]
    assert found.distinct == 4 / 5
    assert found.running == pytest.approx(8 / 10)
    assert found.notes == [
        f"vectors: 4 of 5 words (80.0%), 80.0% of the running text, have a vector of 2 dimensions in {path}, looked "
        "up in lower case; the others are initialised at random"
    ]


def test_a_cased_file_is_asked_as_the_words_are(file):
    path = file("the 1 2\nThe 3 4\nimdb 5 6\n")
    found = load(path, VOCABULARY)
    assert not found.uncased
    assert found.in_file.tolist() == [True, True, False, False, False, False, False]
    assert found.vectors[:2].tolist() == [[3, 4], [1, 2]]
    assert found.running is None
    assert found.notes == [
        f"vectors: 2 of 5 words (40.0%) have a vector of 2 dimensions in {path}; the others are initialised at random"
    ]


def test_a_few_names_do_not_make_a_file_cased(file):
    lines = ["the 1 2\n", "IMDb 3 4\n", "imdb 5 6\n", *(f"w{number} 1 1\n" for number in range(100))]
    found = load(file("".join(lines)), VOCABULARY)
    assert found.uncased
    assert found.vectors[[0, 4]].tolist() == [[1, 2], [3, 4]]


def test_words_without_a_vector_start_at_random_as_far_out_as_the_others(file):
    tokens = [f"w{number}" for number in range(400)]
    vocabulary = Vocabulary("word", [*tokens, "<pad>", "<unk>"], SPECIALS)
    generator = torch.Generator().manual_seed(0)
    numbers = (torch.randn(200, 50, generator=generator) * 0.3).tolist()
    text = "".join(f"{token} {' '.join(map(str, row))}\n" for token, row in zip(tokens[:200], numbers, strict=True))
    path = file(text)
    one, again, other = (load(path, vocabulary, seed=seed) for seed in (1, 1, 2))
    assert one.vectors.dtype == torch.float32
    assert torch.equal(one.vectors, again.vectors)
    assert one.sha256 == again.sha256 != other.sha256
    assert torch.equal(one.vectors[one.in_file], other.vectors[one.in_file])
    at_random = one.vectors[200:400]
    assert at_random.std().item() == pytest.approx(one.vectors[:200].std().item(), rel=0.03)
    assert one.vectors[vocabulary.special("padding")].tolist() == [0.0] * 50
    assert one.vectors[vocabulary.special("unknown")].abs().sum() > 0


def test_torch_is_left_as_it_was(file):
    before = torch.get_rng_state()
    load(file("the 1 2\n"), VOCABULARY)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_wrong_dimension(file):
    path = file("the 1 2\n")
    assert load(path, VOCABULARY, dimension=2).vectors.shape == (7, 2)
    with pytest.raises(
        ValueError, match=r"vectors\.txt: its vectors have 2 dimensions, but the model needs 300\. Use another file"
    ):
        load(path, VOCABULARY, dimension=300)


def test_no_word_in_common(file):
    with pytest.raises(ValueError, match=r"vectors\.txt: none of its 1 words occurs among the 5 words of the texts"):
        load(file("other 1 2\n"), VOCABULARY)


def test_notes_on_the_file_come_along(file):
    path = file("the 1 2\nthe 3 4\n")
    assert load(path, VOCABULARY).notes[1].startswith(f"{path}:2: 'the' occurs a second time")
