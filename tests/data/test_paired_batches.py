import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.paired_batches import PairedBatches

PADDING, START, END = 999, 997, 998
MARKS = {"padding": PADDING, "start": START, "end": END}


def make(lengths):
    """Both sides of pair number n are filled with n, so that they are known again."""
    sources = [torch.full((source,), number) for number, (source, _) in enumerate(lengths)]
    targets = [torch.full((target,), number) for number, (_, target) in enumerate(lengths)]
    return sources, targets


def some_lengths(number):
    draw = torch.Generator().manual_seed(0)
    targets = (torch.rand(number, generator=draw) ** 3 * 200).long() + 1
    sources = (targets * (0.7 + 0.6 * torch.rand(number, generator=draw))).long() + 1
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


def check(batch, lengths):
    """Time first, true lengths, marks in their places, and padding after them."""
    tensors = vars(batch).values()
    assert {each.dtype for each in tensors} == {torch.int64}
    assert batch.source.shape == (int(batch.source_lengths.max()), len(batch.rows))
    assert batch.target_in.shape == batch.labels.shape == (int(batch.target_lengths.max()), len(batch.rows))
    for column, row in enumerate(batch.rows.tolist()):
        source, target = lengths[row]
        assert batch.source_lengths[column] == source
        assert batch.target_lengths[column] == target + 1
        S, T = len(batch.source), len(batch.labels)
        assert batch.source[:, column].tolist() == [row] * source + [PADDING] * (S - source)
        assert batch.target_in[:, column].tolist() == [START] + [row] * target + [PADDING] * (T - target - 1)
        assert batch.labels[:, column].tolist() == [row] * target + [END] + [PADDING] * (T - target - 1)


LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=4, max_size=40)


@settings(deadline=None)
@given(LENGTHS, st.integers(4, 9), st.integers(1, 4), st.integers(0, 2))
def test_every_pair_once_over_all_ranks(lengths, batch_size, world_size, epoch):
    data = make(lengths)
    ranks = [
        PairedBatches(*data, batch_size, **MARKS, rank=rank, world_size=world_size, pool=2)
        for rank in range(world_size)
    ]
    whole = PairedBatches(*data, batch_size, **MARKS, pool=2)
    batches = list(whole.epoch(epoch))
    assert len(batches) == len(whole) == -(-len(lengths) // batch_size)
    for batch in batches:
        check(batch, lengths)
    read = []
    for number, shares in enumerate(zip(*(rank.epoch(epoch) for rank in ranks), strict=True)):
        rows = [row for share in shares for row in share.rows.tolist()]
        if len(ranks[0]) == len(whole):
            assert sorted(rows) == sorted(batches[number].rows.tolist())
        for share in shares:
            check(share, lengths)
        read += rows
    assert sorted(read) == list(range(len(lengths)))


def test_guarantee_exact_resume_at_any_batch():
    batches = PairedBatches(*make(some_lengths(60)), 8, **MARKS, pool=2)
    for epoch in (0, 3):
        whole = list(batches.epoch(epoch))
        for start in range(len(batches) + 1):
            rest = list(batches.epoch(epoch, start))
            assert len(rest) == len(whole) - start
            for one, other in zip(rest, whole[start:], strict=True):
                assert all(torch.equal(vars(one)[name], vars(other)[name]) for name in vars(one))
    with pytest.raises(ValueError, match="PairedBatches: an epoch has 8 batches, so start must be 0 to 8, got 9"):
        batches.epoch(0, 9)


def test_guarantee_deterministic_from_seed_and_epoch():
    def rows(seed, epoch):
        batches = PairedBatches(*make(some_lengths(60)), 8, **MARKS, seed=seed, pool=2)
        return [batch.rows.tolist() for batch in batches.epoch(epoch)]

    before = torch.get_rng_state()
    assert rows(1, 0) == rows(1, 0)
    assert len({str(rows(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_both_sides_of_a_batch_are_of_similar_length():
    lengths = some_lengths(5_000)
    batches = PairedBatches(*make(lengths), 16, **MARKS)
    read = list(batches.epoch(0))
    padded = sum(batch.source.numel() + batch.labels.numel() for batch in read)
    assert batches.waste(0) == pytest.approx(1 - sum(source + target + 1 for source, target in lengths) / padded)
    assert batches.waste(0) < 0.1
    assert PairedBatches(*make(lengths), 16, **MARKS, pool=1).waste(0) > 0.5


def test_what_goes_to_a_device_is_all_of_it():
    batch = next(PairedBatches(*make([(3, 2)]), 1, **MARKS).epoch(0))
    moved = batch.to("cpu")
    assert all(torch.equal(vars(moved)[name], each) for name, each in vars(batch).items())
    assert {each.device.type for each in vars(batch.to("meta")).values()} == {"meta"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "PairedBatches: batch_size must be at least 1, got 0"),
        ({"targets": make([(1, 1)])[1]}, "every source needs its target, got 2 sources and 1 targets"),
        ({"targets": make([(1, 1), (1, 0)])[1]}, "every sequence must have a token, sequence number 1 has none"),
        ({"sources": [], "targets": []}, "PairedBatches: there are no sequences"),
        ({"rank": 2, "world_size": 2}, "PairedBatches: rank must be 0 to world_size - 1 = 1, got 2"),
        ({"world_size": 3}, "PairedBatches: 2 sequences in batches of 2 cannot be divided over 3 ranks"),
    ],
)
def test_what_does_not_go(change, message):
    sources, targets = make([(1, 2), (2, 1)])
    with pytest.raises(ValueError, match=message):
        PairedBatches(**{"sources": sources, "targets": targets, "batch_size": 2, **MARKS, **change})
