"""Sampling the next token from logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quasirnn.errors import NotFiniteError


class Sampler:
    """Draws one token per row, optionally from the most likely ones only.

    Args:
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: only the k most likely tokens; None for all.
        top_p: only the smallest set of most likely tokens whose probabilities sum to at least p; None for all.
        never: tokens that are not drawn.
        seed: the same seed draws the same tokens from the same logits; None is a new random seed.

    >>> Sampler(temperature=0)(torch.tensor([[0.1, 2.0, -1.0]])).tolist()
    [1]
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        never: Sequence[int] = (),
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be finite and at least 0, got {temperature}.")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}.")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}.")
        if seed is not None and not 0 <= seed < 2**63:
            raise ValueError(f"seed must be at least 0 and below 2**63, got {seed}.")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.never = list(never)
        # On the CPU whatever the model's device, so that a seed gives the same text everywhere.
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)

    def __call__(self, logits: Tensor) -> Tensor:
        """Tokens (B,) from logits (B, V)."""
        if not logits.amax(-1).isfinite().all():
            raise NotFiniteError("sample")
        if self.never:
            logits = logits.index_fill(-1, torch.tensor(self.never, device=logits.device), float("-inf"))
        if self.temperature == 0:
            return logits.argmax(-1)
        # In float64: sums of 30,000 float32 probabilities are too inexact.
        exact = logits.double().cpu()
        # The largest becomes 0: otherwise a very low temperature would make several of them infinite.
        scaled = (exact - exact.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            # By index and not by value, so that at most k tokens remain even among equals.
            top = scaled.topk(self.top_k)
            scaled = torch.full_like(scaled, float("-inf")).scatter(-1, top.indices, top.values)
        probabilities = scaled.softmax(-1)
        if self.top_p is not None:
            ordered, order = probabilities.sort(descending=True, stable=True)
            # A token is kept if those before it sum to less than p, so the first one always is.
            surplus = ordered.cumsum(-1) - ordered >= self.top_p
            probabilities = probabilities.masked_fill(surplus.gather(-1, order.argsort(-1)), 0.0)
        return torch.multinomial(probabilities, 1, generator=self.generator)[:, 0].to(logits.device)
