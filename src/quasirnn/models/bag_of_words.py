"""Logistic regression on bags of words, or of words and bigrams: a baseline that ignores word order.

    p(class) = softmax(b + sum of W[feature] over the features of the text)

A feature is a word that occurs, however often; with `order` 2 also a pair of neighbouring words. Features that do not
occur in the training texts are ignored.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

# Candidate weights of the L2 penalty: too little overfits, too much underfits.
L2 = (1e-5, 1e-4, 1e-3)
ITERATIONS = 100


class BagOfWords(nn.Module):
    """Logistic regression on the features of the given texts; all weights are initialised to zero.

    Args:
        texts: the training texts, each (T,), int64, not negative; they define the features.
        classes: C, the number of classes.
        order: 1 for words, 2 for words and pairs.

    Inputs: `texts`, a sequence of N texts. Outputs: logits (N, C).

    >>> texts = [torch.tensor([1, 2]), torch.tensor([2, 1, 2])]
    >>> BagOfWords(texts, classes=2, order=2).features  # 1, 2, 1 2, 2 1
    4
    """

    def __init__(self, texts: Sequence[Tensor], classes: int, order: int = 1) -> None:
        super().__init__()
        if order not in (1, 2):
            raise ValueError(f"BagOfWords: order must be 1 (words) or 2 (words and pairs), got {order}")
        self.order = order
        # Words beyond this are unknown, and so are pairs with them.
        self.words = max((int(text.max()) for text in texts if len(text)), default=0) + 1
        known, _ = _keys(texts, order, self.words)
        self.known: Tensor
        self.register_buffer("known", known.unique())  # sorted
        self.weight = nn.Parameter(torch.zeros(self.features, classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    @property
    def features(self) -> int:
        return len(self.known)

    def forward(self, texts: Sequence[Tensor]) -> Tensor:
        return self.score(*self.bags(texts), len(texts))

    def bags(self, texts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The features of all texts, concatenated, and the index of the text of each."""
        keys, rows = _keys(texts, self.order, self.words)
        index = torch.searchsorted(self.known, keys).clamp(max=self.features - 1)
        is_known = self.known[index] == keys
        # Each feature of a text once: (text, feature) as one number.
        pairs = (rows[is_known] * self.features + index[is_known]).unique()
        return pairs % self.features, pairs // self.features

    def score(self, features: Tensor, rows: Tensor, texts: int) -> Tensor:
        """The logits of bags, (N, C)."""
        # Faster than embedding_bag, which is optimised for longer vectors.
        return self.bias.repeat(texts, 1).index_add(0, rows, self.weight.index_select(0, features))


def fit(texts: Sequence[Tensor], labels: Tensor, classes: int, order: int = 1, l2: float = 1e-4) -> BagOfWords:
    """Minimise the mean cross entropy + l2 / 2 * (sum of squared weights).

    L-BFGS from zero, at most ITERATIONS steps: further ones only fit the noise of the training texts. Deterministic at
    a fixed number of threads.

    Args:
        labels: (N,), int64.
    """
    model = BagOfWords(texts, classes, order)
    bags = model.bags(texts)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=ITERATIONS, history_size=10, tolerance_change=1e-7, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model.score(*bags, len(texts)), labels) + l2 / 2 * model.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model.requires_grad_(False)


def fit_best(
    train: tuple[Sequence[Tensor], Tensor], valid: tuple[Sequence[Tensor], Tensor], classes: int, order: int = 1
) -> BagOfWords:
    """The model with the penalty of L2 that is best on validation; train and valid are texts and labels."""
    models = [fit(*train, classes, order, l2) for l2 in L2]
    return max(models, key=lambda model: accuracy(model, *valid))


def accuracy(model: BagOfWords, texts: Sequence[Tensor], labels: Tensor) -> float:
    """The share of texts that are classified correctly."""
    return (model(texts).argmax(1) == labels).double().mean().item()


def _keys(texts: Sequence[Tensor], order: int, words: int) -> tuple[Tensor, Tensor]:
    """The features of texts as numbers, word w as w, pair v w as (v + 1) * words + w; and the text of each."""
    flat = torch.cat([torch.empty(0, dtype=torch.int64), *texts])
    rows = torch.repeat_interleave(torch.arange(len(texts)), torch.tensor([len(text) for text in texts]))
    is_known = flat < words
    keys, key_rows = [flat[is_known]], [rows[is_known]]
    if order == 2:
        pairs = (rows[1:] == rows[:-1]) & is_known[1:] & is_known[:-1]
        keys.append((flat[:-1][pairs] + 1) * words + flat[1:][pairs])
        key_rows.append(rows[1:][pairs])
    return torch.cat(keys), torch.cat(key_rows)
