from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.shapes import padding_share
from quasirnn.data.batches import EvaluationBatches, LengthBatches, lengths_of, pad, to_device
from quasirnn.tasks.translation import Pairs, pair_batches

PADDING = 999


def some_lengths(number, longest=300):
    return (torch.rand(number, generator=torch.Generator().manual_seed(0)) ** 3 * longest).long().add(1).tolist()


def filled(lengths):
    """Sequence number n is filled with n, so that it is known again."""
    return [torch.full((length,), number) for number, length in enumerate(lengths)]


def make(lengths, batch_size, max_length=None, **options):
    """Batches of such sequences, which have their rows as well."""
    sequences = filled(lengths)

    def collate(rows):
        return {**pad("tokens", sequences, rows, PADDING, max_length), "rows": torch.from_numpy(rows.copy())}

    kind = EvaluationBatches if options.pop("evaluation", False) else LengthBatches
    lengths = lengths_of(sequences, max_length)
    if kind is EvaluationBatches:
        return EvaluationBatches(lengths, collate, batch_size=batch_size, **options)
    return LengthBatches(lengths, batch_size, collate, **options)


def check(batch, lengths):
    """Time first, true lengths, and padding after them."""
    assert {each.dtype for each in batch.values()} == {torch.int64}
    assert batch["tokens"].shape == (int(batch["tokens_lengths"].max()), len(batch["rows"]))
    lengths_and_rows = zip(batch["tokens_lengths"].tolist(), batch["rows"].tolist(), strict=True)
    for column, (length, row) in zip(batch["tokens"].T.tolist(), lengths_and_rows, strict=True):
        assert length == lengths[row]
        assert column == [row] * length + [PADDING] * (len(column) - length)


def rows_of(batches):
    return [batch["rows"].tolist() for batch in batches]


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 4), st.integers(0, 2))
def test_every_sequence_once_in_batches_of_about_one_size(lengths, batch_size, pool, epoch):
    batches = make(lengths, batch_size, pool=pool)
    read = list(batches.epoch(epoch))
    assert len(read) == len(batches) == -(-len(lengths) // batch_size)
    for batch in read:
        check(batch, lengths)
    assert sorted(row for rows in rows_of(read) for row in rows) == list(range(len(lengths)))
    assert rows_of(read) == [rows.tolist() for rows in batches.order(epoch)]
    sizes = set(map(len, rows_of(read)))
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 20), min_size=8, max_size=40), st.integers(4, 9), st.integers(1, 4))
def test_ranks_together_have_the_batch_of_one_process(lengths, batch_size, world_size):
    ranks = [make(lengths, batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]
    whole = make(lengths, batch_size)
    # Only where a batch would have less rows than there are ranks is the number of batches another one.
    assert {len(rank) for rank in ranks} == {min(len(whole), len(lengths) // world_size)}
    batches, read = rows_of(whole.epoch(1)), []
    for number, shares in enumerate(zip(*(rank.epoch(1) for rank in ranks), strict=True)):
        together = sorted(row for rows in rows_of(shares) for row in rows)
        if len(ranks[0]) == len(whole):
            assert sorted(batches[number]) == together
        sizes = list(map(len, rows_of(shares)))
        assert 1 <= max(sizes) <= min(sizes) + 1
        for share in shares:
            check(share, lengths)
        read += together
    assert sorted(read) == list(range(len(lengths)))


@pytest.mark.parametrize("rank", [0, 1])
def test_guarantee_exact_resume_at_any_batch(rank):
    batches = make(some_lengths(60), 8, rank=rank, world_size=2, pool=2)
    for epoch in (0, 3):
        whole = list(batches.epoch(epoch))
        for start in range(len(batches) + 1):
            rest = list(batches.epoch(epoch, start))
            assert len(rest) == len(whole) - start
            for one, other in zip(rest, whole[start:], strict=True):
                assert all(torch.equal(one[name], other[name]) for name in one)


def test_guarantee_deterministic_from_seed_and_epoch():
    def rows(seed, epoch):
        return rows_of(make(some_lengths(60), 8, seed=seed, pool=2).epoch(epoch))

    before = torch.get_rng_state()
    assert rows(1, 0) == rows(1, 0)
    assert len({str(rows(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_is_the_same_everywhere():
    """Worked out once: neither the machine nor a release of numpy or torch may move it."""
    assert rows_of(make([3, 1, 4, 1, 5, 9, 2, 6], 2).epoch(0)) == [[7, 5], [3, 1], [6, 0], [2, 4]]


def test_lengths_of_a_batch_are_close_and_batches_come_in_any_order():
    lengths = some_lengths(5_000)
    array = {"tokens": np.array(lengths)}
    batches = make(lengths, 20, pool=50)
    longest = [len(batch["tokens"]) for batch in batches.epoch(0)]
    padded = sum(batch["tokens"].numel() for batch in batches.epoch(0))
    waste = padding_share(array, batches.order(0))
    assert waste == pytest.approx(1 - sum(lengths) / padded)
    assert waste < 0.05
    assert padding_share(array, make(lengths, 20, pool=1).order(0)) > 0.5
    assert longest != sorted(longest)
    # A rank pads to its own longest row.
    shares = [make(lengths, 20, pool=50, rank=rank, world_size=2).epoch(0) for rank in (0, 1)]
    assert sum(batch["tokens"].numel() for share in shares for batch in share) < padded


def test_nothing_is_cut_unless_asked():
    lengths = [3, 2_000, 5]
    assert next(make(lengths, 3).epoch(0))["tokens"].shape == (2_000, 3)
    check(next(make(lengths, 3, max_length=4).epoch(0)), [3, 4, 4])


@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 60))
def test_results_come_back_in_the_order_of_the_sequences(lengths, batch_size, max_tokens):
    batches = make(lengths, batch_size, max_tokens=max_tokens, evaluation=True)
    read = list(batches)
    assert len(read) == len(batches)
    for batch in read:
        check(batch, lengths)
        assert len(batch["rows"]) <= batch_size
        assert max_tokens is None or batch["tokens"].numel() <= max_tokens or len(batch["rows"]) == 1
    in_order = torch.cat([batch["tokens_lengths"] for batch in read])
    assert torch.equal(in_order, in_order.sort().values)
    assert batches.restore([batch["tokens_lengths"] for batch in read]).tolist() == lengths
    columns = batches.restore([batch["rows"].unsqueeze(1) for batch in read])
    assert torch.equal(columns, torch.arange(len(lengths)).unsqueeze(1))
    padded = sum(batch["tokens"].numel() for batch in read)
    assert padding_share({"tokens": np.array(lengths)}, batches.rows) == pytest.approx(1 - sum(lengths) / padded)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([1, 2], {"batch_size": 0}, "LengthBatches: batch_size must be at least 1, got 0"),
        ([1, 2], {"batch_size": 0, "evaluation": True}, "EvaluationBatches: batch_size must be at least 1, got 0"),
        ([1, 2], {"rank": 2, "world_size": 2}, "rank must be 0 to world_size - 1 = 1, got 2"),
        ([1] * 4, {"world_size": 3}, "4 sequences in batches of 2 cannot be divided among 3 ranks; .* Use a larger"),
        ([], {}, "LengthBatches: there are no sequences"),
        ([1, 0, 2, 3], {}, "every sequence needs at least one token, sequence 1 has none"),
    ],
)
def test_what_does_not_go(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        make(lengths, **{"batch_size": 2, **options})


def test_lengths_are_rounded_up_to_a_multiple():
    rows = [torch.ones(length, dtype=torch.int64) for length in (3, 8, 5)]
    batch = pad("tokens", rows, np.array([2, 0]), 7, multiple=8)
    assert batch["tokens"].T.tolist() == [[1] * 5 + [7] * 3, [1] * 3 + [7] * 5]
    assert batch["tokens_lengths"].tolist() == [5, 3]
    assert pad("tokens", rows, np.array([1]), 7, multiple=8)["tokens"].shape == (8, 1)


@pytest.mark.parametrize("start", [-1, 3])
def test_a_start_outside_of_the_epoch(start):
    with pytest.raises(ValueError, match=f"an epoch has 2 batches, so start must be 0 to 2, got {start}"):
        make([1, 2, 3], 2).epoch(0, start)


def test_what_goes_to_a_device_is_all_of_it():
    batch = next(make([3, 2], 2).epoch(0))
    assert {each.device.type for each in to_device(batch, "meta").values()} == {"meta"}
    assert all(torch.equal(each, batch[name]) for name, each in to_device(batch, "cpu").items())


MARKS = SimpleNamespace(padding=PADDING, start=997, end=998)


def make_pairs(lengths, batch_size=8, **options):
    sources, targets = (filled(side) for side in zip(*lengths, strict=True))
    return pair_batches(MARKS, Pairs(sources, targets, [], []), batch_size, **options)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=4, max_size=40), st.integers(1, 4))
def test_pairs_have_their_marks_in_their_places(lengths, world_size):
    read = []
    for rank in range(world_size):
        for batch in make_pairs(lengths, rank=rank, world_size=world_size, pool=2).epoch(1):
            assert {each.dtype for each in batch.values()} == {torch.int64}
            S, T = len(batch["source"]), len(batch["labels"])
            assert tuple(int(batch[f"{side}_lengths"].max()) for side in ("source", "target")) == (S, T)
            rows = batch["source"][0].tolist()
            for column, row in enumerate(rows):
                source, target = lengths[row]
                assert batch["source_lengths"][column] == source
                assert batch["target_lengths"][column] == target + 1
                rest = [PADDING] * (T - target - 1)
                assert batch["source"][:, column].tolist() == [row] * source + [PADDING] * (S - source)
                assert batch["target"][:, column].tolist() == [MARKS.start] + [row] * target + rest
                assert batch["labels"][:, column].tolist() == [row] * target + [MARKS.end] + rest
            read += rows
    assert sorted(read) == list(range(len(lengths)))


def test_both_sides_of_a_batch_of_pairs_are_of_similar_length():
    targets = np.array(some_lengths(5_000, longest=200))
    draw = torch.rand(5_000, generator=torch.Generator().manual_seed(1)).numpy()
    sources = (targets * (0.7 + 0.6 * draw)).astype(np.int64) + 1
    lengths = list(zip(sources.tolist(), targets.tolist(), strict=True))
    by_side = {"source": sources, "target": targets + 1}
    assert padding_share(by_side, make_pairs(lengths, 16).order(0)) < 0.1
    assert padding_share(by_side, make_pairs(lengths, 16, pool=1).order(0)) > 0.5
