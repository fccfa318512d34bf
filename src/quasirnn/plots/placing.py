"""Where words can stand in a panel without covering what is drawn there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

# Directions in which words may stand from their point, the preferred first, and distances in points.
DIRECTIONS = ((0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0))
DISTANCES = (7, 13, 20, 30, 42)


def spread(places: Sequence[float], apart: float) -> list[float]:
    """The places moved as little as needed to be `apart` from one another; in their order.

    >>> spread([0.0, 1.0, 10.0], 4)
    [-1.5, 2.5, 10.0]
    """
    order = sorted(range(len(places)), key=lambda n: places[n])
    # Neighbours that touch are one block around the mean of their places.
    blocks: list[list[int]] = []
    centre: dict[int, float] = {}
    for n in order:
        block = [n]
        while blocks and _centre(blocks[-1], places) + apart * (len(blocks[-1]) + len(block)) / 2 > _centre(
            block, places
        ):
            block = blocks.pop() + block
        blocks.append(block)
    for block in blocks:
        middle = _centre(block, places)
        centre.update({n: middle + apart * (rank - (len(block) - 1) / 2) for rank, n in enumerate(block)})
    return [centre[n] for n in range(len(places))]


def _centre(block: Sequence[int], places: Sequence[float]) -> float:
    return sum(places[n] for n in block) / len(block)


class Obstacles:
    """What words in a panel must not cover. The panel must have its final place and limits."""

    def __init__(self, panel: "Axes") -> None:
        self.panel = panel
        self.points = panel.figure.dpi / 72
        self._pixels: list[np.ndarray] = []  # rows of x, y, weight
        self._words: list[Bbox] = []

    def add_line(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, weight: float = 1) -> None:
        """A line through points in data coordinates."""
        if not len(x):
            return
        corners = self.panel.transData.transform(np.column_stack([x, y]))
        # A point for every few pixels of each piece.
        lengths = np.hypot(*np.diff(corners, axis=0).T)
        along = np.concatenate([[0.0], np.cumsum(lengths)])
        count = int(min(along[-1] / 2, 20_000)) + 1
        at = np.linspace(0, along[-1], count)
        dense = np.column_stack([np.interp(at, along, corners[:, 0]), np.interp(at, along, corners[:, 1])])
        self._pixels.append(np.column_stack([dense, np.full(count, weight)]))

    def add_mark(self, x: float, y: float, radius: float) -> None:
        """A mark around a point in data coordinates; the radius is in points."""
        turn = np.linspace(0, 2 * np.pi, 17)[:-1]
        circle = self.panel.transData.transform((x, y)) + radius * self.points * np.column_stack(
            [np.cos(turn), np.sin(turn)]
        )
        self._pixels.append(np.column_stack([circle, np.full(len(circle), 5.0)]))

    def place(self, x: float, y: float, words: str, **look: Any) -> "Annotation":
        """Write words near a point in data coordinates, where they cover least; rather near it than quite alone."""
        point = self.panel.transData.transform((x, y))
        text = self.panel.annotate(
            words, (x, y), xytext=(0, 0), textcoords="offset points", annotation_clip=False, **look
        )
        best = None
        for distance in DISTANCES:
            for right, up in DIRECTIONS:
                offset = (distance * right, distance * up)
                sides = {"ha": ("right", "center", "left")[right + 1], "va": ("top", "center", "bottom")[up + 1]}
                text.set(**sides)
                text.xyann = offset
                box = text.get_window_extent()
                # Words that stand away have a line to their point, which must not cross other words.
                line = point + np.linspace(0, 1, 20)[:, None] * np.array(offset) * self.points
                crossed = sum(other.count_contains(line) > 0 for other in self._words)
                cost = self._cost(box) + 1000 * crossed + 0.5 * (distance - DISTANCES[0])
                if best is None or cost < best[0]:
                    best = (cost, offset, sides, box)
            if best[0] == 0:
                break
        _, text.xyann, sides, box = best
        text.set(**sides)
        self._words.append(box)
        if max(map(abs, text.xyann)) > DISTANCES[0]:
            self._lead(x, y, text)
            line = np.linspace(point, point + np.array(text.xyann) * self.points, 20)
            self._pixels.append(np.column_stack([line, np.full(20, 5.0)]))
        return text

    def _cost(self, box: "Bbox") -> float:
        """How much words in this box would cover, and how far they would stand outside the panel."""
        frame = self.panel.bbox
        outside = max(frame.x0 - box.x0, box.x1 - frame.x1, frame.y0 - box.y0, box.y1 - frame.y1, 0.0)
        around = box.padded(2 * self.points)
        cost = 10_000.0 * (outside > 0) + sum(1000.0 for other in self._words if around.overlaps(other))
        for pixels in self._pixels:
            inside = (
                (pixels[:, 0] > around.x0)
                & (pixels[:, 0] < around.x1)
                & (pixels[:, 1] > around.y0)
                & (pixels[:, 1] < around.y1)
            )
            cost += float(pixels[inside, 2].sum())
        return cost

    def _lead(self, x: float, y: float, text: "Annotation") -> None:
        """A thin line from words that stand away to their point."""
        self.panel.annotate(
            "",
            (x, y),
            xytext=(text.xyann[0], text.xyann[1]),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": "#777777", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 5},
        ).set_in_layout(False)
