"""Beam search: against every output there is, against plain loops, alone and in a batch, and in what it returns."""

import itertools
import math
import re
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.exhaustive_search import END, RandomModel, Result, every_path, factor, plain_beam, ranked, row
from models.small_decoders import START, memoryless, search
from quasirnn.models import greedy
from quasirnn.models.decoding import Hypothesis, select_rows


def check_same(results: list[Hypothesis], expected: list[Result] | list[Hypothesis]) -> None:
    assert [one.tokens for one in results] == [one.tokens for one in expected]
    assert [one.finished for one in results] == [one.finished for one in expected]
    for one, other in zip(results, expected, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-12)
        assert one.log_probability == pytest.approx(other.log_probability, rel=1e-12)
        assert one.attention.shape == other.attention.shape
    attention = (torch.cat([one.attention for one in ones]) for ones in (results, expected))
    torch.testing.assert_close(*attention, rtol=0, atol=1e-12)


def test_a_finished_hypothesis_competes_and_may_be_driven_out():
    # At α = 1 and a target length of 4 the factors are 5, 5/2, ... First 5 log 0.4 = -4.6 for [1] and 5 log 0.3 = -6.0
    # for [], which ends; then 5/2 log 0.2 = -4.0 for both [1, 1] and [1, 2].
    step = memoryless([0, 0, 0, 1], [0, 0.5, 0.5, 0], [0.0, 0, 1.0, 0], [0.3, 0.4, 0.3, 0])
    results = search(step, None, 1, alpha=1.0, target_lengths=4, max_lengths=6, beam=2, n_best=2)[0]
    assert [] not in [one.tokens for one in results]
    # With room for all it stays, and is the only one that ends.
    results = search(step, None, 1, alpha=1.0, target_lengths=4, max_lengths=6, beam=50, n_best=50)[0]
    assert results[0].tokens == []
    assert [one.finished for one in results].count(True) == 1


# Against every output, and against plain loops.


@pytest.mark.parametrize("longest", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_all_prefixes_is_exhaustive_search(seed, longest):
    # 1 + 3 + ... + 3^(longest - 1) finished outputs and 3^longest cut off.
    outputs = (3**longest - 1) // 2 + 3**longest
    model = RandomModel(seed, end_bias=seed - 1.5)
    state = model.first_state(2)
    paths = [every_path(model, row(state, sentence), start=START, longest=longest) for sentence in range(2)]
    assert [len(results) for results in paths] == [outputs, outputs]
    for alpha, target in itertools.product([0.0, 0.6, 1.0, 2.0], [0, 2, 7]):
        options = {"alpha": alpha, "target_lengths": target, "max_lengths": longest, "beam": outputs}
        everything = search(model, state, 2, n_best=outputs, **options)
        best = search(model, state, 2, n_best=1, **options)
        for sentence in range(2):
            expected = ranked(paths[sentence], target, alpha)
            check_same(everything[sentence], expected)
            check_same(best[sentence], expected[:1])


@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 9),
    alpha=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.7]),
    target=st.integers(0, 14),
    longest=st.integers(1, 12),
    end_bias=st.floats(-3, 3),
    scale=st.sampled_from([0.3, 1.0, 3.0]),
    data=st.data(),
)
def test_stopping_early_changes_nothing(seed, beam, alpha, target, longest, end_bias, scale, data):
    n_best = data.draw(st.integers(1, beam))
    model = RandomModel(seed, end_bias=end_bias, scale=scale)
    state = model.first_state(1)
    expected = plain_beam(model, state, start=START, target=target, longest=longest, alpha=alpha, beam=beam)
    options = {"target_lengths": target, "max_lengths": longest, "alpha": alpha, "beam": beam}
    results = search(model, state, 1, n_best=n_best, **options)
    check_same(results[0], expected[:n_best])


def test_it_stops_when_the_best_cannot_be_overtaken_and_not_before():
    # Ends soon, most likely; what is left then falls behind at every step.
    model = RandomModel(0, end_bias=3.0)
    search(model, model.first_state(1), 1, alpha=0.0, max_lengths=1000, beam=8)
    assert len(model.calls) < 10

    # One finished hypothesis at log 0.5 with the factor 1.5 (T = 2 of T_trg = 2, α = 1), and an unfinished one at log
    # 0.4: it may still win, for 1.5 log 0.5 < log 0.4, and does, being certain from then on. At T_trg = 1 it could not.
    calls = []
    table = memoryless([0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0.5, 0.4, 0.1, 0], [1, 0, 0, 0, 0])

    def step(tokens, state):
        calls.append(len(tokens))
        return table(tokens, state)

    results = search(step, None, 1, alpha=1.0, target_lengths=2, max_lengths=9, beam=2)[0][0]
    assert (results.tokens, results.score) == ([2, 4], pytest.approx(math.log(0.4)))
    assert len(calls) == 3
    calls.clear()
    results = search(step, None, 1, alpha=1.0, target_lengths=1, max_lengths=9, beam=2)[0][0]
    assert (results.tokens, results.score) == ([1], pytest.approx(math.log(0.5)))
    assert len(calls) == 2
    # The maximum length bounds the factor: with two steps at most the other cannot be better than 1.5 log 0.4.
    calls.clear()
    results = search(step, None, 1, alpha=1.0, target_lengths=2, max_lengths=2, beam=2)[0][0]
    assert results.tokens == [1]


# Batches.


@pytest.mark.parametrize("n_best", [1, 3])
@pytest.mark.parametrize("beam", [3, 8])
def test_guarantee_a_sentence_alone_and_in_a_batch_of_32_gives_the_same(beam, n_best):
    model = RandomModel(5, vocabulary=11, size=7, end_bias=-2.0)
    state = model.first_state(32)
    targets = torch.randint(3, 20, (32,))
    longest = torch.randint(5, 40, (32,))
    together = search(model, state, 32, target_lengths=targets, max_lengths=longest, beam=beam, n_best=n_best)
    assert len({tuple(results[0].tokens) for results in together}) > 20
    assert {results[0].finished for results in together} == {True, False}
    for sentence in range(32):
        alone = search(
            model,
            row(state, sentence),
            1,
            target_lengths=int(targets[sentence]),
            max_lengths=[int(longest[sentence])],
            beam=beam,
            n_best=n_best,
        )
        check_same(together[sentence], alone[0])


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_ties_do_not_depend_on_the_batch(alpha):
    # Every token and every sentence is equally likely at every step, so only ties decide.
    uniform = memoryless(*[[1 / 40] * 40] * 40)
    alone = search(uniform, None, 1, alpha=alpha, beam=7, n_best=7)[0]
    for results in search(uniform, None, 5, alpha=alpha, beam=7, n_best=7, max_lengths=[12, 2, 12, 1, 7])[::2][:2]:
        assert [one.tokens for one in results] == [one.tokens for one in alone]


def test_ties_go_to_finished_hypotheses_then_to_the_one_ahead_then_to_the_smaller_token():
    results = search(memoryless(*[[0.25] * 4] * 4), None, 1, alpha=0.0, beam=6, n_best=6, max_lengths=2)[0]
    # The beam ends as [], then what follows 1 in the order of tokens, the end mark first, then the first that follows
    # 2. Of these the finished ones are returned first.
    assert [(one.tokens, one.finished) for one in results] == [
        ([], True),
        ([1], True),
        ([2], True),
        ([1, 1], False),
        ([1, 2], False),
        ([1, 3], False),
    ]


@pytest.mark.parametrize("beam", [1, 2, 8, 60])
def test_of_equally_likely_tokens_the_smaller_come_first_in_a_large_vocabulary(beam):
    log_probs = torch.randint(-6, 0, (50, 301)).double()
    # In half of the rows all in the beam differ but the last, which has many equals outside.
    log_probs[25:] = -6
    for sentence in log_probs[25:]:
        sentence[1 + torch.randperm(300)[: beam - 1]] = -5 + torch.rand(beam - 1).double()
    log_probs[:, END] = -math.inf
    log_probs = log_probs.log_softmax(1)
    results = search(lambda tokens, state: (log_probs, state, None), None, 50, beam=beam, n_best=beam, max_lengths=1)
    expected = log_probs.sort(descending=True, stable=True).indices[:, :beam, None]
    assert [[one.tokens for one in sentence] for sentence in results] == expected.tolist()


def test_sentences_that_are_done_leave_the_batch():
    # The state says after how many steps a sentence ends.
    class Countdown(NamedTuple):
        left: torch.Tensor

    calls = []

    def step(tokens, state):
        calls.append(len(tokens))
        over = state.left <= 1
        odds = torch.tensor([[0.01, 0.5, 0.3, 0.19], [0.97, 0.01, 0.01, 0.01]]).double().log()
        return odds[over.long()], Countdown(state.left - 1), None

    left = torch.tensor([3, 1, 7, 2])
    results = greedy(step, Countdown(left), 4, start=START, end=END, max_lengths=20)
    assert [len(one.tokens) for one in results] == [2, 0, 6, 1]
    assert calls == [4, 3, 2, 1, 1, 1, 1]
    calls.clear()
    results = search(step, Countdown(left), 4, beam=3, alpha=0.0, max_lengths=20)
    assert [len(one[0].tokens) for one in results] == [2, 0, 6, 1]
    assert calls[0] == 4
    assert calls[1] % 3 == 0
    assert calls[-1] <= 3
    assert len(calls) == 7


def test_rows_of_a_sentence_stand_together_in_order_and_each_sentence_has_as_many():
    model = RandomModel(2, end_bias=0.5)
    owners = []

    def step(tokens, state):
        inner, sentence = state
        assert END not in tokens, "a finished hypothesis does not go on"
        owners.append(sentence.tolist())
        log_probs, inner, attention = model(tokens, inner)
        return log_probs, (inner, sentence), attention

    search(step, (model.first_state(9), torch.arange(9)), 9, beam=5, n_best=5, max_lengths=8)
    assert owners[0] == list(range(9))
    assert len(owners) > 4
    for sentences in owners:
        present = sorted(set(sentences))
        assert sentences == [one for one in present for _ in range(len(sentences) // len(present))]
        assert len(sentences) // len(present) <= 5


def test_rows_are_selected_only_when_they_move():
    def never(state, rows):
        raise AssertionError(rows)

    uniform = memoryless([0.2, 0.3, 0.4, 0.1], *[[0.0, 0.3, 0.4, 0.3]] * 3)
    assert len(search(uniform, None, 2, beam=1, select=never)[1][0].tokens) == 12
    assert len(greedy(uniform, None, 2, start=START, end=END, max_lengths=12, select=never)[1].tokens) == 12


def test_no_sentences():
    assert search(None, None, 0) == []
    assert search(None, None, 0, target_lengths=[], max_lengths=torch.empty(0, dtype=torch.long)) == []
    assert greedy(None, None, 0, start=START, end=END, max_lengths=3) == []


# What is returned.


def test_the_n_best_are_sorted_distinct_and_as_likely_as_they_say():
    model = RandomModel(8, end_bias=0.5)
    state = model.first_state(4)
    for sentence, results in enumerate(search(model, state, 4, beam=20, n_best=20, max_lengths=9)):
        assert len(results) == 20
        finished = [one.score for one in results if one.finished]
        cut = [one.score for one in results if not one.finished]
        assert [one.finished for one in results] == [True] * len(finished) + [False] * len(cut)
        assert finished == sorted(finished, reverse=True)
        assert cut == sorted(cut, reverse=True)
        assert len({(*one.tokens, one.finished) for one in results}) == 20
        for one in results:
            taken = [*one.tokens, END] if one.finished else one.tokens
            inputs, at, total, attention = [START, *one.tokens][: len(taken)], row(state, sentence), 0.0, []
            for token, following in zip(inputs, taken, strict=True):
                log_probs, at, weights = model(torch.tensor([token]), at)
                total += float(log_probs[0, following])
                attention.append(weights[0])
            assert one.log_probability == pytest.approx(total, rel=1e-12)
            assert one.score == pytest.approx(total * factor(len(taken), 6, 0.6), rel=1e-12)
            # One row a step, the end mark's too, from the row that this very hypothesis had.
            torch.testing.assert_close(one.attention, torch.stack(attention), rtol=0, atol=1e-12)


def test_fewer_than_n_where_there_are_no_more():
    results = search(memoryless([0.0, 1, 0], [0.6, 0, 0.4], [1, 0, 0]), None, 1, start=0, beam=8, n_best=8)[0]
    assert [one.tokens for one in results] == [[1], [1, 2]]


def test_a_model_that_never_ends_is_cut_off_at_the_maximum_length():
    step = memoryless(*[[0, 0.5, 0.3, 0.2]] * 4)
    results = search(step, None, 2, beam=4, n_best=2, max_lengths=[3, 7])
    for sentence, longest in ((0, 3), (1, 7)):
        assert [one.finished for one in results[sentence]] == [False, False]
        assert results[sentence][0].tokens == [1] * longest
        assert results[sentence][0].log_probability == pytest.approx(longest * math.log(0.5))
    cut = greedy(step, None, 1, start=START, end=END, max_lengths=5)[0]
    assert (cut.tokens, cut.finished) == ([1] * 5, False)


def test_what_is_finished_ranks_before_what_is_cut_off():
    # [] is less likely than going on for ever, and stays in the beam.
    step = memoryless([0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0.2, 0.8, 0, 0])
    results = search(step, None, 1, alpha=0.0, beam=4, n_best=2, max_lengths=9)[0]
    assert [(one.tokens, one.finished) for one in results] == [([], True), ([1] * 9, False)]
    assert results[0].score < results[1].score


def test_a_model_that_ends_at_once_gives_an_empty_output():
    model = RandomModel(1, end_bias=50.0)
    state = model.first_state(3)
    for one in (
        *(best[0] for best in search(model, state, 3)),
        *greedy(model, state, 3, start=1, end=0, max_lengths=9),
    ):
        assert (one.tokens, one.finished) == ([], True)
        assert one.attention.shape == (1, 5)
    assert model.calls == [3, 3]


def test_tokens_at_minus_infinity_never_come():
    # Of 1 and 2 each leads to the other, and only 2 to the end.
    step = memoryless([0, 0, 0, 1], [0, 0, 1, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0])
    results = search(step, None, 1, beam=8, n_best=8, max_lengths=6)[0]
    assert {tuple(one.tokens) for one in results if one.finished} == {
        (2,),
        (1, 2),
        (2, 1, 2),
        (1, 2, 1, 2),
        (2, 1, 2, 1, 2),
    }
    assert all(math.isfinite(one.score) for one in results)


def test_float32_and_half_are_added_up_in_double():
    log_probs = torch.tensor([[-20.0, -1e-4, -9.5, -30.0]]).half().log_softmax(1)
    results = search(lambda tokens, state: (log_probs.expand(len(tokens), -1), None, None), None, 1, max_lengths=500)
    assert results[0][0].log_probability == pytest.approx(500 * log_probs[0, 1].double().item(), rel=1e-9)


def test_nothing_is_kept_for_a_gradient():
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    results = search(
        lambda tokens, state: ((tokens[:, None] + weight[tokens]).log_softmax(1), None, weight[tokens]), None, 1
    )
    assert not results[0][0].attention.requires_grad


def test_rows_of_a_state_are_picked_in_any_tree_and_dimension():
    class Pair(NamedTuple):
        h: torch.Tensor
        rest: object

    rows = torch.tensor([2, 0])
    tensor = torch.arange(12).view(2, 3, 2)
    selected = select_rows(Pair(tensor, {"a": [tensor, None], "b": (tensor,)}), rows, dim=1)
    expected = tensor[:, rows]
    assert isinstance(selected, Pair)
    assert torch.equal(selected.h, expected)
    assert torch.equal(selected.rest["a"][0], expected)
    assert selected.rest["a"][1] is None
    assert torch.equal(selected.rest["b"][0], expected)
    with pytest.raises(TypeError, match=r"select_rows: .* got int\. Pass a `select` of your own"):
        select_rows((tensor, 3), rows, dim=1)


def test_the_state_of_a_recurrent_layer():
    torch.manual_seed(3)
    rnn = torch.nn.LSTM(4, 6, 2).double()
    outer, vectors = torch.randn(6, 4).double(), torch.randn(4, 4).double()

    def step(tokens, state):
        h, state = rnn(vectors[tokens][None], state)
        return (3 * h[0] @ outer).log_softmax(1), state, None

    first = tuple(torch.randn(2, 5, 6).double() for _ in range(2))
    together = search(step, first, 5, select=partial(select_rows, dim=1))
    for sentence in range(5):
        alone = search(step, tuple(x[:, [sentence]] for x in first), 1, select=partial(select_rows, dim=1))
        assert [one.tokens for one in together[sentence]] == [one.tokens for one in alone[0]]


# Mistakes.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0, "n_best": 0}, "beam_search: beam must be at least 1, got 0."),
        ({"beam": 4, "n_best": 5}, "beam_search: n_best must be from 1 to beam = 4, got 5."),
        ({"n_best": 0}, "beam_search: n_best must be from 1 to beam = 8, got 0."),
        ({"alpha": -0.1}, "alpha must be finite and at least 0, got -0.1."),
        ({"alpha": math.nan}, "alpha must be finite and at least 0, got nan."),
        ({"alpha": 1e200, "target_lengths": 9}, "alpha = 1e+200 is too large: the factor for 9 tokens is infinite."),
        ({"end": -1}, "beam_search: end must be at least 0, got -1."),
        ({"start": -2}, "beam_search: start must be at least 0, got -2."),
        ({"end": 7}, "beam_search: end = 7 is not one of the V = 4 tokens of step."),
        ({"max_lengths": [3, 0]}, "beam_search: max_lengths must be at least 1, got 0."),
        ({"max_lengths": 2.5}, "beam_search: max_lengths must be integers, got torch.float32."),
        ({"target_lengths": -1}, "beam_search: target_lengths must be at least 0, got -1."),
        (
            {"target_lengths": [1, 2, 3]},
            "beam_search: target_lengths must be one number, or one per sentence, (B,) = (2,), got (3,).",
        ),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        search(memoryless(*[[0.25] * 4] * 4), None, 2, **options)


def test_rounding_above_0_is_taken_for_0():
    step = memoryless([0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0])
    results = search(lambda tokens, state: (step(tokens, state)[0] + 1e-6, state, None), None, 1)[0][0]
    assert (results.tokens, results.log_probability, results.score) == ([1], 0.0, 0.0)
