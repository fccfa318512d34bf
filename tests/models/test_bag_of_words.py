import pytest
import torch

from quasirnn.models.bag_of_words import BagOfWords, accuracy, fit, fit_best
from quasirnn.tasks.sentiment import DEMO, TASK


def texts(*lists):
    return [torch.tensor(each, dtype=torch.int64) for each in lists]


def test_features_worked_by_hand():
    model = BagOfWords(texts([1, 2], [2, 1, 2, 2]), classes=2, order=2)
    # Words 1, 2 and pairs 1 2, 2 1, 2 2; the words number 0 to 2, so that a pair v w is (v + 1) * 3 + w.
    assert model.known.tolist() == [1, 2, 8, 10, 11]
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0], [2, 0], [4, 0], [8, 0], [16, 0]]))
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    logits = model(texts([1, 2, 1, 2], [2, 2, 2], [], [7, 1], [0, 2, 0]))
    # 1, 2, 1 2, 2 1 once each; 2, 2 2; nothing; 1; 2.
    assert logits[:, 0].tolist() == [15.5, 18.5, 0.5, 1.5, 2.5]
    assert logits[:, 1].tolist() == [-0.5] * 5


def test_pairs_do_not_cross_texts():
    assert BagOfWords(texts([1], [2]), classes=2, order=2).features == 2


def test_a_word_that_tells_is_found():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (300,), generator=generator)
    data = [torch.cat([torch.randint(3, 50, (10,), generator=generator), label.view(1)]) for label in labels]
    model = fit(data[:200], labels[:200], classes=3)
    assert accuracy(model, data[200:], labels[200:]) == 1.0
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_order_is_seen_by_pairs_alone():
    data = texts([1, 2, 3], [3, 2, 1]) * 10
    labels = torch.tensor([0, 1] * 10)
    assert accuracy(fit(data, labels, classes=2, order=1), data, labels) == 0.5
    assert accuracy(fit(data, labels, classes=2, order=2), data, labels) == 1.0


def test_guarantee_deterministic_fit():
    data, labels = texts([1, 2, 3], [3, 2, 1], [2, 2]), torch.tensor([0, 1, 1])
    one, other = (fit(data, labels, classes=2, order=2) for _ in range(2))
    assert torch.equal(one.weight, other.weight)


def test_another_order():
    with pytest.raises(ValueError, match=r"order must be 1 \(words\) or 2 \(words and pairs\), got 3"):
        BagOfWords(texts([1]), classes=2, order=3)


# The reviews are the same to the letter, which data/test_reviews.py sees to; so are these figures.
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("order", "bar"), [(1, 0.85), (2, 0.90)])
def test_the_built_in_reviews_need_order(order, bar):
    """And no straw man: the best of several penalties on validation."""
    parts = TASK.dataset(DEMO.qrnn, (), ("train", "valid", "test")).parts
    train, valid, test = ((part.ids, part.labels) for part in parts.values())
    model = fit_best(train, valid, classes=2, order=order)
    assert 0.55 < accuracy(model, *test) < bar
