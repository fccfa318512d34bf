"""A neural cache: recent words of a text, added to a language model (Grave, Joulin and Usunier, 2017).

Nothing is trained: the probability of a word is mixed with how often it followed similar outputs of the network,

    p(w) = (1 - share) p_model(w) + share p_cache(w)
    p_cache(w) is proportional to the sum of exp(sharpness h_t . h_i) over the window's i < t that w followed

so a text that repeats its words is predicted better the longer it gets.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from quasirnn.models.language_model import LanguageModel
from quasirnn.models.recurrent import State

# The values that are tried on validation text.
SHARPNESS = (0.1, 0.2, 0.3, 0.5, 0.8)
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


class CachedLosses:
    """The summed loss of one stream, for every sharpness and share at once.

    Args:
        window: tokens that are remembered.

    Feed windows of the stream in order with `add`; `mean` then has the loss per token, (sharpness, share).
    """

    def __init__(
        self,
        model: LanguageModel,
        window: int,
        sharpness: Iterable[float] = SHARPNESS,
        shares: Iterable[float] = SHARES,
    ) -> None:
        self.model, self.window = model, window
        self.sharpness, self.shares = tuple(sharpness), tuple(shares)
        self._state: State | None = None
        self._keys: Tensor | None = None  # (W, H): the outputs before the words that are remembered
        self._words: Tensor | None = None  # (W,)
        self._total = torch.zeros(len(self.sharpness), len(self.shares), dtype=torch.float64)
        self._count = 0

    @torch.no_grad()
    def add(self, tokens: Tensor, targets: Tensor) -> None:
        """One window of the stream, (T, 1) each."""
        h, self._state = self.model.hidden(tokens, self._state)
        h, targets = h[:, 0], targets[:, 0]
        model = self.model.softmax(h).double().log_softmax(-1).gather(-1, targets[:, None])[:, 0].exp()
        keys = h if self._keys is None else torch.cat([self._keys, h])
        words = targets if self._words is None else torch.cat([self._words, targets])
        T, W = len(h), len(keys)
        # Step t, number W - T + t of all keys, sees the `window` keys before it.
        age = torch.arange(W - T, W, device=h.device)[:, None] - torch.arange(W, device=h.device)
        seen = (age > 0) & (age <= self.window)
        scores = (h @ keys.T).double()
        same = seen & (words == targets[:, None])
        for row, sharpness in enumerate(self.sharpness):
            scaled = (sharpness * scores).masked_fill(~seen, -torch.inf)
            total = scaled.logsumexp(-1)
            cache = (scaled.masked_fill(~same, -torch.inf).logsumexp(-1) - total).exp()
            # There is no word before the first one.
            cache = torch.where(seen.any(-1), cache, model)
            for column, share in enumerate(self.shares):
                self._total[row, column] -= ((1 - share) * model + share * cache).log().sum().cpu()
        self._count += T
        self._keys, self._words = keys[-self.window :], words[-self.window :]

    @property
    def mean(self) -> Tensor:
        """Nats per token, (sharpness, share)."""
        return self._total / self._count


def best_of(losses: CachedLosses) -> tuple[float, float]:
    """The sharpness and the share with the lowest loss."""
    row, column = divmod(int(losses.mean.argmin()), len(losses.shares))
    return losses.sharpness[row], losses.shares[column]


def read(losses: CachedLosses, windows: Iterable[tuple[Tensor, Tensor]], tick: Callable[[int], None]) -> CachedLosses:
    """Feed all windows of a stream."""
    device = next(losses.model.parameters()).device
    for done, (tokens, targets) in enumerate(windows, 1):
        losses.add(tokens.to(device), targets.to(device))
        tick(done)
    return losses
