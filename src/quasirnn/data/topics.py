"""The Python reference topics: a corpus that ships inside every Python, so nothing is bundled or fetched.

`help("topics")` reads the same pages. They differ a little from one Python release to the next, so figures on this
corpus compare models on one machine, not machines with one another.
"""

import zlib
from dataclasses import dataclass

# Each held-out part is filled up to this share of the text; a topic larger than half of that stays in training,
# so that no single page decides the figure.
HELD_OUT = 0.08


@dataclass(frozen=True)
class Topics:
    """Three parts of the text with no topic, and no paragraph, in common."""

    train: str
    valid: str
    test: str


def load() -> Topics:
    """Read the topics of the running Python, about 370,000 characters in 3.11, and split them by topic.

    Some topics repeat whole sections of others ("with" is a part of "compound"). Every paragraph is kept once only:
    otherwise the held-out text would hold sentences seen in training.
    """
    from pydoc_data.topics import topics

    return split(without_repeats(topics))


def without_repeats(topics: dict[str, str]) -> dict[str, str]:
    """The topics by name, each paragraph where it comes first in alphabetical order of the names."""
    seen: set[str] = set()
    kept: dict[str, str] = {}
    for name in sorted(topics):
        new = [paragraph for paragraph in topics[name].strip("\n").split("\n\n") if paragraph not in seen]
        # A page may repeat itself as well: dict keys keep the order and drop the second.
        kept[name] = "\n\n".join(dict.fromkeys(new))
        seen.update(new)
    return {name: text for name, text in kept.items() if text}


def split(topics: dict[str, str]) -> Topics:
    """Deal whole topics to the three parts, in an order that depends on nothing but their names."""
    target = HELD_OUT * sum(map(len, topics.values()))
    parts: dict[str, list[str]] = {"test": [], "valid": [], "train": []}
    for name in sorted(topics, key=lambda name: zlib.crc32(name.encode())):
        text = topics[name]
        for held_out in ("test", "valid"):
            if len(text) <= target / 2 and sum(map(len, parts[held_out])) + len(text) <= target:
                parts[held_out].append(text)
                break
        else:
            parts["train"].append(text)
    return Topics(**{part: "\n\n\n".join(texts) for part, texts in parts.items()})
