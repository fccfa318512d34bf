"""Drawing the next token from logits."""

import torch
from torch import Tensor


class Sampler:
    """Draws one token a row, from the most likely ones only if asked.

    Args:
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: only the k most likely tokens; None for all.
        top_p: only the smallest set of likeliest tokens whose probabilities reach p; None for all.
        seed: the same seed draws the same tokens from the same logits; None draws anew each time.

    >>> Sampler(temperature=0)(torch.tensor([[0.1, 2.0, -1.0]])).tolist()
    [1]
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, and finite, got {temperature}.")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be 1 or more, got {top_k}.")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must be over 0 and at most 1, got {top_p}.")
        if seed is not None and not 0 <= seed < 2**63:
            raise ValueError(f"seed must be 0 or more, and less than 2**63, got {seed}.")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        # On the CPU whatever the model's device: the same seed then gives the same text everywhere.
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)

    def __call__(self, logits: Tensor) -> Tensor:
        """Tokens (B,) from logits (B, V)."""
        if self.temperature == 0:
            return logits.argmax(-1)
        # In double: with float32 sums of 30,000 probabilities the last bits decide too often.
        logits_here = logits.double().cpu()
        # The largest at 0: a very low temperature would make infinities of several.
        scaled = (logits_here - logits_here.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            # By place and not by value, so that of equally likely tokens no more than k stay.
            likeliest = scaled.topk(self.top_k)
            scaled = torch.full_like(scaled, float("-inf")).scatter(-1, likeliest.indices, likeliest.values)
        probabilities = scaled.softmax(-1)
        if self.top_p is not None:
            ordered, order = probabilities.sort(descending=True, stable=True)
            # A token stays if those before it have not reached p yet; so the first one always stays.
            surplus = ordered.cumsum(-1) - ordered >= self.top_p
            probabilities = probabilities.masked_fill(surplus.gather(-1, order.argsort(-1)), 0.0)
        return torch.multinomial(probabilities, 1, generator=self.generator)[:, 0].to(logits.device)
