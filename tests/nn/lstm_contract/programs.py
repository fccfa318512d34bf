"""Modules as people write them around `nn.LSTM`, one of each family of use. `cell` is the class, all that changes."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

State = tuple[Tensor, Tensor]


class Tagger(nn.Module):
    """A label for every word, both directions."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rnn = cell(8, 6, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)
        self.out = nn.Linear(12, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        self.rnn.flatten_parameters()
        output, _ = self.rnn(self.embedding(tokens))
        return functional.log_softmax(self.out(output), dim=-1)


class SequenceToSequence(nn.Module):
    """An encoder whose cells start the decoder."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.encoder = cell(input_size=4, hidden_size=6, num_layers=2)
        self.decoder = cell(input_size=3, hidden_size=6, num_layers=2)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        _, (_, c) = self.encoder(source)
        # The line that an LSTM's program has as `(h, c)`: cells alone carry over, see docs/from-lstm.md.
        c = c[..., :6].contiguous()
        output, _ = self.decoder(target, (torch.zeros_like(c), c))
        return output


class Policy(nn.Module):
    """Reinforcement learning: one step at a time, state kept by the caller, reset where an episode ended."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.rnn = cell(4, 6)
        self.actions, self.value = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, observation: Tensor, state: State | None, done: Tensor) -> tuple[Tensor, Tensor, State]:
        if state is not None:
            alive = (1.0 - done.float()).view(1, -1, 1)
            state = (alive * state[0], alive * state[1])
        output, state = self.rnn(observation.unsqueeze(0), state)
        return self.actions(output[0]), self.value(output[0]), state


class PackedClassifier(nn.Module):
    """Sequences of different length, packed; the last output of each decides."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.rnn = cell(4, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, (h_n, _) = self.rnn(packed)
        padded, _ = pad_packed_sequence(output, batch_first=True)
        return self.out(torch.cat([h_n[-2], h_n[-1]], dim=1)), padded


class StreamingAudio(nn.Module):
    """Frames arrive in chunks; the state goes from chunk to chunk, detached."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.rnn = cell(5, 6, 2)
        self.mask = nn.Linear(6, 5)

    @torch.no_grad()
    def forward(self, chunks: list[Tensor]) -> Tensor:
        state, masked = None, []
        for chunk in chunks:
            output, state = self.rnn(chunk, state)
            h, c = state
            state = (h.detach(), c.detach())
            masked.append(chunk * torch.sigmoid(self.mask(output)))
        return torch.cat(masked)


class CharacterModel(nn.Module):
    """Truncated backpropagation: hidden states repackaged between pieces, then text drawn a character at a time."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 6)
        self.rnn = cell(6, 6, 2, dropout=0.2)
        self.out = nn.Linear(6, 12)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        output, state = self.rnn(self.embedding(tokens), state)
        return self.out(output), state

    def repackaged(self, state: State) -> State:
        return tuple(part.detach() for part in state)  # type: ignore[return-value]


class Forecaster(nn.Module):
    """As DeepAR: a window of the past conditions, then one sampled step feeds the next, for several samples at once."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.rnn = cell(1, 6, 2, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, past: Tensor, steps: int, samples: int) -> Tensor:
        output, (h, c) = self.rnn(past[..., None])
        h, c = (part.repeat_interleave(samples, dim=1) for part in (h, c))
        last, drawn = output[:, -1].repeat_interleave(samples, dim=0), []
        for _ in range(steps):
            mean, scale = self.out(last).chunk(2, dim=-1)
            value = mean + functional.softplus(scale) * torch.randn_like(mean)
            drawn.append(value)
            output, (h, c) = self.rnn(value[:, None], (h, c))
            last = output[:, 0]
        return torch.stack(drawn, dim=1)
