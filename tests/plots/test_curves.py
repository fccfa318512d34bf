"""Learning curves: the range of the axes, colours, labels, and that no texts overlap."""

import numpy as np
import pytest

from plots.seen import missing_glyphs, overlaps, words
from quasirnn.tasks.curves import Curve, colours, learning_curves, limits, number, smooth

NONE = np.empty(0)


def run(name: str, epochs: int, end: float, start: float = 9000.0, per_epoch: int = 5) -> Curve:
    """Falls from `start` towards `end`; validation is a tenth above training."""
    steps = np.arange(1, epochs * per_epoch + 1) / per_epoch
    value = end * np.exp(np.log(start / end) * np.exp(-1.5 * np.sqrt(steps)))
    return Curve(name, steps[per_epoch - 1 :: per_epoch], 1.1 * value[per_epoch - 1 :: per_epoch], steps, value)


def diverged(name: str) -> Curve:
    good = run(name, 6, 200)
    return Curve(name, good.valid_epochs, np.where(good.valid_epochs > 3, 1e5, good.valid), *_train(good))


def _train(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    return curve.train_epochs, np.where(curve.train_epochs > 3, 1e5, curve.train)


CASES = {
    "one": [run("one", 6, 80)],
    "four": [run("qrnn", 30, 80), run("lstm", 30, 84), run("no zoneout", 12, 90), run("fast", 3, 100)],
    "many": [run(f"run {n}", 3 + n, 80 + n) for n in range(10)],
    "one point": [Curve("a point", np.array([1.0]), np.array([120.0]))],
    "one step": [Curve("a step", NONE, NONE, np.array([0.01]), np.array([9000.0]))],
    "diverged": [run("good", 6, 80), diverged("bad"), Curve("worse", np.arange(1, 4), np.full(3, 1e5))],
    "odd names": [run("_hidden", 3, 80), run("$x$ 漢\n" * 30, 3, 90), run("", 3, 95)],
}
REFERENCES = {"the paper's QRNN": 78.3, "the paper's LSTM": 82.0}


@pytest.mark.parametrize("references", [pytest.param({}, marks=pytest.mark.full), REFERENCES], ids=["", "references"])
@pytest.mark.parametrize("case", CASES)
def test_no_texts_overlap(case, references, tmp_path, figures):
    path = tmp_path / "curves.svg"
    learning_curves(path, CASES[case], figure="perplexity", unit="per word", logarithmic=True, references=references)
    figure = figures[0]
    assert overlaps(figure) == []
    panel = figure.axes[0]
    # Most of the plot are the axes, and the legend is within them or below.
    assert panel.bbox.width > 0.85 * figure.bbox.width
    assert panel.bbox.height > (0.5 if case in ("many", "odd names") else 0.8) * figure.bbox.height
    with missing_glyphs():
        legend = panel.get_legend().get_window_extent()
        content = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert legend.y1 < panel.bbox.y0 or panel.bbox.count_contains(legend.corners()) == 4
    # Everything is on the figure.
    assert figure.bbox.padded(1).count_contains(content.corners()) == 4
    written = words(path)
    assert {"Perplexity by epoch", "perplexity (per word)", "training (epochs)"} <= set(written)
    for name, value in references.items():
        assert f"{name}: {value:.2f}" in written


def test_pngs_are_of_a_sane_size(tmp_path):
    from PIL import Image

    path = tmp_path / "curves.png"
    learning_curves(path, CASES["four"], figure="perplexity", logarithmic=True, references=REFERENCES)
    with Image.open(path) as picture:
        assert 800 < picture.width < 1600
        assert 500 < picture.height < 1000


def test_the_best_validation_is_named_and_marked(tmp_path, figures):
    curve = Curve("run", np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.9142, 0.9]))
    learning_curves(tmp_path / "a.svg", [curve], figure="accuracy", higher_is_better=True)
    assert {"run: 0.9142 at epoch 2", "best validation", "accuracy"} <= set(words(tmp_path / "a.svg"))
    learning_curves(tmp_path / "b.svg", [curve], figure="loss")
    assert "run: 0.5000 at epoch 1" in words(tmp_path / "b.svg")
    for figure, place in zip(figures, [(2.0, 0.9142), (1.0, 0.5)], strict=True):
        rings = [line for line in figure.axes[0].lines if line.get_markersize() == 9]
        assert [ring.get_xydata().tolist() for ring in rings] == [[list(place)]]


def test_a_title_can_be_given(tmp_path):
    learning_curves(tmp_path / "a.svg", CASES["one"], figure="perplexity", title="language-model on ptb")
    assert "language-model on ptb" in words(tmp_path / "a.svg")


def test_a_run_that_diverged_does_not_flatten_the_others(tmp_path, figures):
    learning_curves(tmp_path / "a.svg", CASES["diverged"], figure="perplexity", logarithmic=True)
    low, high = figures[0].axes[0].get_ylim()
    best = min(curve.valid.min() for curve in CASES["diverged"])
    assert low < best < high < 20 * best
    written = words(tmp_path / "a.svg")
    assert "validation above the axes" in written
    assert "worse: 100,000 at epoch 1" in written
    learning_curves(tmp_path / "b.svg", CASES["one"], figure="perplexity", logarithmic=True)
    assert "validation above the axes" not in words(tmp_path / "b.svg")


def test_a_run_without_validation_says_so(tmp_path):
    learning_curves(tmp_path / "a.svg", CASES["one step"], figure="perplexity", logarithmic=True)
    assert "a step (no validation yet)" in words(tmp_path / "a.svg")


def test_what_is_not_finite_is_left_out(tmp_path):
    curve = Curve("run", np.arange(1, 5), np.array([np.nan, 90.0, np.inf, -1.0]))
    learning_curves(tmp_path / "a.svg", [curve], figure="perplexity", logarithmic=True)
    assert "run: 90.00 at epoch 2" in words(tmp_path / "a.svg")
    with pytest.raises(ValueError, match="nothing to plot, there is no finite perplexity"):
        learning_curves(tmp_path / "b.svg", [Curve("run", np.arange(2), np.full(2, np.nan))], figure="perplexity")


def test_limits():
    def of(valid, train=(), references=(), logarithmic=True, higher=False):
        valid, train = np.array(valid, float), np.array(train, float)
        curve = Curve("", np.arange(len(valid)), valid, np.arange(len(train)), train)
        return limits([curve], list(references), logarithmic, higher)

    low, high = of([100, 50, 40], [150, 45, 30])
    assert 25 < low < 30
    assert 150 < high < 200
    # The start leaves the frame, a reference is in it.
    low, high = of([500, 100], [10_000, 90], references=[78.3])
    assert 60 < low < 78.3
    assert high < 1100
    assert of([100], references=[900])[1] > 900
    # A run that has just begun is in it too, far from any reference.
    low, high = of([], [10_000, 9_000], references=[78.3])
    assert low < 78.3
    assert high > 9_000
    # Without a scale of its own, divergence is what exceeds the start.
    low, high = of([2.0, 1.5, 1e5, 1e5], logarithmic=False)
    assert low < 1.5
    assert 2.0 < high < 4.0
    assert of([0.5, 0.9], logarithmic=False, higher=True)[1] > 0.9
    low, high = of([7.0], logarithmic=False)
    assert low < 7.0 < high
    low, high = of([0.0], logarithmic=False)
    assert low < 0.0 < high


def test_smoothing_is_light_and_keeps_both_ends():
    values = np.random.default_rng(0).uniform(1, 2, 500)
    smoothed = smooth(values)
    assert smoothed[0] == values[0]
    assert smoothed[250] == pytest.approx(values[245:256].mean())
    assert smoothed[-1] == pytest.approx(values[-6:].mean())
    assert smooth(values[:99]) == pytest.approx(values[:99])
    assert smooth(np.array([1.0, 100.0, 1.0] * 100), logarithmic=True)[150] < 10
    assert len(smooth(NONE)) == 0


def test_numbers_have_about_four_digits():
    assert [number(v) for v in (0.9142, 1.2345, 19.41, 123.45, 12345.6, 1e5, 3e12)] == [
        "0.9142",
        "1.234",
        "19.41",
        "123.5",
        "12,346",
        "100,000",
        "3.0e+12",
    ]


def test_runs_of_a_group_are_shades_of_one_hue():
    """Blues for the first group, oranges for the second; without a group each run has its own hue."""
    curves = [Curve(str(n), group=group) for n, group in enumerate(["qrnn", "lstm", "qrnn", "lstm", "qrnn"])]
    shades = [colour[:3] for colour in colours(curves)]
    assert len(set(shades)) == 5
    assert [int(np.argmax(shade)) for shade in shades] == [2, 0, 2, 0, 2]
    # From dark to light.
    assert sum(shades[0]) < sum(shades[2]) < sum(shades[4])
    alone = [int(np.argmax(colour[:3])) for colour in colours([Curve("a"), Curve("b"), Curve("c")])]
    assert alone == [2, 0, 1]
