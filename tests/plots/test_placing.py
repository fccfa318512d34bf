"""Words find a place that is free."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from quasirnn.plots.placing import Obstacles, spread


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([3.0], [3.0]),
        ([0.0, 10.0], [0.0, 10.0]),
        ([5.0, 5.0], [3.0, 7.0]),
        ([10.0, 0.0, 1.0], [10.0, -1.5, 2.5]),
        # The pair pushes a third away, which makes one block of three.
        ([0.0, 0.0, 4.0], [-8 / 3, 4 / 3, 16 / 3]),
    ],
)
def test_spread(places, expected):
    assert spread(places, 4.0) == pytest.approx(expected)


def test_spread_keeps_order_and_distance():
    places = np.random.default_rng(0).uniform(0, 50, 20)
    apart = np.array(spread(places.tolist(), 3.0))
    assert (np.argsort(apart) == np.argsort(places)).all()
    assert np.diff(np.sort(apart)).min() > 3.0 - 1e-9


def test_words_cover_neither_lines_nor_marks_nor_words():
    figure = Figure(figsize=(4, 3))
    panel = figure.subplots()
    panel.set(xlim=(0, 10), ylim=(0, 10))
    obstacles = Obstacles(panel)
    x = np.linspace(0, 10, 50)
    obstacles.add_line(x, x)
    obstacles.add_mark(5, 5, 5)
    first, second = obstacles.place(5, 5, "one point"), obstacles.place(5, 5, "and again")
    boxes = [text.get_window_extent() for text in (first, second)]
    assert not boxes[0].overlaps(boxes[1])
    for box in boxes:
        assert box.count_contains(panel.transData.transform(np.column_stack([x, x]))) == 0
        assert panel.bbox.count_contains(box.corners()) == 4
