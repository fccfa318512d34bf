"""Two classifiers on the same texts: by how much one is better, and how sure that is."""

import math
from dataclasses import dataclass

from quasirnn.data.errors import DataError
from quasirnn.tasks.sentiment_text import SentimentEvaluation, SentimentOnText
from quasirnn.training.learner import Tick


@dataclass(frozen=True)
class Comparison:
    """Of two classifiers on one split; differences are the first's less the second's, in points of a percent."""

    first: SentimentEvaluation
    second: SentimentEvaluation
    both_right: int
    only_first_right: int
    only_second_right: int
    neither_right: int

    @property
    def difference(self) -> float:
        return self.first.accuracy - self.second.accuracy

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference for further texts of the same kind.

        The texts are the same for both, so only those count on which they differ: with b right by the first alone and c
        by the second alone, the difference (b - c) / n has the variance (b + c - (b - c)^2 / n) / n^2.
        """
        n, b, c = self.first.texts, self.only_first_right, self.only_second_right
        deviation = math.sqrt(b + c - (b - c) ** 2 / n) / n
        return self.difference - 196 * deviation, self.difference + 196 * deviation


def compare(
    first: SentimentOnText,
    second: SentimentOnText,
    split: str = "test",
    data: list[str] | None = None,
    tick: Tick = lambda done, of: None,
) -> Comparison:
    """Evaluate both on a split.

    Args:
        data: folders; those of the first one's training if not given.

    Raises:
        DataError: they have different classes, or did not read the same texts.
    """
    if first.classes != second.classes:
        raise DataError(
            f"{first.run.path} and {second.run.path} have different classes: {', '.join(first.classes)}, and "
            f"{', '.join(second.classes)}."
        )
    folders = list(first.training.data) if data is None else data
    results = [model.judge(split, folders, tick) for model in (first, second)]
    (one, part, right), (other, other_part, other_right) = results
    if part.sha256 != other_part.sha256:
        raise DataError(f"{split}: {first.run.path} and {second.run.path} hold out different texts; name others.")
    return Comparison(
        first=one,
        second=other,
        both_right=int((right & other_right).sum()),
        only_first_right=int((right & ~other_right).sum()),
        only_second_right=int((~right & other_right).sum()),
        neither_right=int((~right & ~other_right).sum()),
    )
