"""A minute's comparison: a QRNN and an `nn.LSTM` of equal size learn to spell the Python reference.

Both see the same characters in the same order and take turns step by step, so that whatever else the machine does
hits them alike. The speed is that of a model's median step: a pause of the machine counts against neither.
"""

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quasirnn import QRNN
from quasirnn.data import topics
from quasirnn.data.characters import Characters
from quasirnn.data.streams import Streams


@dataclass(frozen=True)
class Settings:
    seconds: float = 55.0  # of training, for both in all; reading, testing and writing take a few more
    seed: int = 1
    hidden_size: int = 128
    num_layers: int = 2
    embedding_size: int = 64
    batch_size: int = 16
    length: int = 64
    learning_rate: float = 8e-3
    prompt: str = "The "
    sample_length: int = 400
    temperature: float = 0.6


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step."""

    step: int
    done: float  # share of the time, 0 to 1
    bits: dict[str, float]  # loss of this step by model, per character


@dataclass(frozen=True)
class Score:
    name: str
    parameters: int
    bits_per_character: float  # on held-out text
    characters_per_second: float  # in training


@dataclass(frozen=True)
class Outcome:
    qrnn: Score
    lstm: Score
    steps: int
    vocabulary: int
    training_characters: int
    test_characters: int
    sample: str


class CharacterModel(nn.Module):
    """Embedding, recurrent layers, softmax. Written for `nn.LSTM`; the QRNN goes in its place."""

    def __init__(self, rnn: nn.Module, vocabulary: int, embedding_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding_size)
        self.rnn = rnn
        self.decoder = nn.Linear(hidden_size, vocabulary)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, state = self.rnn(self.embedding(x), state)  # (T, B) -> (T, B, H)
        return self.decoder(output), state


class Contestant:
    """One model in training, with its optimizer, the state it carries, and the speed of each step."""

    def __init__(self, name: str, model: CharacterModel, learning_rate: float) -> None:
        self.name = name
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.state: tuple[Tensor, Tensor] | None = None
        self.characters_per_second: list[float] = []

    def step(self, x: Tensor, y: Tensor, learning_rate: float) -> float:
        """Train on one window and return its loss in bits per character."""
        start = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        logits, state = self.model(x, self.state)
        # The next window continues from here, but its gradient stops here.
        self.state = (state[0].detach(), state[1].detach())
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        bits = loss.item() / math.log(2)
        self.characters_per_second.append(y.numel() / (time.perf_counter() - start))
        return bits


def run(settings: Settings, on_progress: Callable[[Progress], None] = lambda progress: None) -> Outcome:
    """Train both models, evaluate them, and let the QRNN write."""
    torch.manual_seed(settings.seed)
    text = topics.load()
    vocabulary = Characters(text.train)
    streams = Streams(vocabulary.encode(text.train), settings.batch_size, settings.length)

    def contestant(name: str, layer: type[nn.Module]) -> Contestant:
        torch.manual_seed(settings.seed)
        rnn = layer(settings.embedding_size, settings.hidden_size, settings.num_layers)
        model = CharacterModel(rnn, len(vocabulary), settings.embedding_size, settings.hidden_size)
        return Contestant(name, model, settings.learning_rate)

    pair = [contestant("QRNN", QRNN), contestant("nn.LSTM", nn.LSTM)]
    steps = train(pair, streams, settings, on_progress)

    test = vocabulary.encode(text.test)
    qrnn, lstm = (score(each, bits_per_character(each.model, test)) for each in pair)
    return Outcome(
        qrnn=qrnn,
        lstm=lstm,
        steps=steps,
        vocabulary=len(vocabulary),
        training_characters=len(text.train),
        test_characters=len(text.test),
        sample=write(pair[0].model, vocabulary, settings),
    )


def train(pair: list[Contestant], streams: Streams, settings: Settings, on_progress: Callable[[Progress], None]) -> int:
    """Step both models in turn, pass after pass, until the time is up; return the steps that each has made.

    The learning rate falls to zero with the time, not with a number of steps guessed beforehand: a machine that is busy
    with something else then costs steps, but neither the minute nor the end of the schedule.
    """
    # Copies that are thrown away wake the thread pools and allocators for the first of the two.
    for each in copy.deepcopy(pair):
        each.step(*next(iter(streams)), learning_rate=0.0)
    start = time.perf_counter()
    step, done = 0, 0.0
    while True:
        for each in pair:
            each.state = None
        for x, y in streams:
            warm_up = min(1.0, (step + 1) / 20)
            rate = settings.learning_rate * warm_up * 0.5 * (1 + math.cos(math.pi * done))
            # Who goes first changes, as the second finds x and y in the cache.
            turn = pair if step % 2 == 0 else pair[::-1]
            bits = {each.name: each.step(x, y, rate) for each in turn}
            step += 1
            done = min(1.0, (time.perf_counter() - start) / settings.seconds)
            on_progress(Progress(step, done, bits))
            if done == 1.0:
                return step


def score(contestant: Contestant, bits: float) -> Score:
    return Score(
        name=contestant.name,
        parameters=sum(p.numel() for p in contestant.model.parameters()),
        bits_per_character=bits,
        characters_per_second=statistics.median(contestant.characters_per_second),
    )


@torch.no_grad()
def bits_per_character(model: CharacterModel, ids: Tensor) -> float:
    """Cross-entropy on a text in bits per character, with the state carried from window to window."""
    model.eval()
    state, nats, count = None, 0.0, 0
    for x, y in Streams(ids, batch_size=8, length=256):
        logits, state = model(x, state)
        nats += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    return nats / count / math.log(2)


@torch.no_grad()
def write(model: CharacterModel, vocabulary: Characters, settings: Settings) -> str:
    """Let the model continue the prompt, one character at a time, its state passed back whole."""
    model.eval()
    generator = torch.Generator().manual_seed(settings.seed)
    current, state = vocabulary.encode(settings.prompt).view(-1, 1), None  # (T, 1)
    numbers = []
    for _ in range(settings.sample_length):
        logits, state = model(current, state)
        probabilities = (logits[-1, 0] / settings.temperature).softmax(-1)
        current = torch.multinomial(probabilities, 1, generator=generator).view(1, 1)
        numbers.append(int(current))
    return settings.prompt + vocabulary.decode(numbers)
