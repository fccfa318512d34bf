import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.length_batches import EvaluationBatches, LengthBatches

PADDING = 999


def make(lengths):
    """Sequence number n is filled with n, so that it is known again; its label is n as well."""
    sequences = [torch.full((length,), number) for number, length in enumerate(lengths)]
    return sequences, torch.arange(len(lengths))


def some_lengths(number, longest=300):
    return (torch.rand(number, generator=torch.Generator().manual_seed(0)) ** 3 * longest).long().add(1).tolist()


def check(batch, lengths):
    """Time first, true lengths, and padding after them."""
    assert batch.tokens.dtype == batch.lengths.dtype == batch.rows.dtype == torch.int64
    assert batch.tokens.shape == (int(batch.lengths.max()), len(batch.rows))
    for column, length, row in zip(batch.tokens.T, batch.lengths.tolist(), batch.rows.tolist(), strict=True):
        assert length == lengths[row]
        assert column.tolist() == [row] * length + [PADDING] * (len(column) - length)


def same(one, other):
    return torch.equal(one.tokens, other.tokens) and torch.equal(one.rows, other.rows)


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 9), st.integers(1, 4), st.integers(0, 2))
def test_every_sequence_once_in_batches_of_about_one_size(lengths, batch_size, pool, epoch):
    batches = LengthBatches(*make(lengths), batch_size, padding=PADDING, pool=pool)
    read = list(batches.epoch(epoch))
    assert len(read) == len(batches) == -(-len(lengths) // batch_size)
    for batch in read:
        check(batch, lengths)
        assert torch.equal(batch.labels, batch.rows)
    assert sorted(row for batch in read for row in batch.rows.tolist()) == list(range(len(lengths)))
    sizes = {len(batch.rows) for batch in read}
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=8, max_size=40), st.integers(4, 9), st.integers(1, 4))
def test_ranks_together_have_the_batch_of_one_process(lengths, batch_size, world_size):
    data = make(lengths)
    ranks = [
        LengthBatches(*data, batch_size, padding=PADDING, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    whole = LengthBatches(*data, batch_size, padding=PADDING)
    # Only where a batch would have less rows than there are ranks is the number of batches another one.
    assert {len(rank) for rank in ranks} == {min(len(whole), len(lengths) // world_size)}
    batches = list(whole.epoch(1))
    for number, shares in enumerate(zip(*(rank.epoch(1) for rank in ranks), strict=True)):
        if len(ranks[0]) == len(whole):
            together = sorted(row for share in shares for row in share.rows.tolist())
            assert sorted(batches[number].rows.tolist()) == together
        sizes = [len(share.rows) for share in shares]
        assert 1 <= max(sizes) <= min(sizes) + 1
        for share in shares:
            check(share, lengths)
    read = [row for rank in ranks for batch in rank.epoch(1) for row in batch.rows.tolist()]
    assert sorted(read) == list(range(len(lengths)))


@pytest.mark.parametrize("rank", [0, 1])
def test_guarantee_exact_resume_at_any_batch(rank):
    batches = LengthBatches(*make(some_lengths(60)), 8, padding=PADDING, rank=rank, world_size=2, pool=2)
    for epoch in (0, 3):
        whole = list(batches.epoch(epoch))
        for start in range(len(batches) + 1):
            rest = list(batches.epoch(epoch, start))
            assert len(rest) == len(whole) - start
            assert all(same(one, other) for one, other in zip(rest, whole[start:], strict=True))


def test_guarantee_deterministic_from_seed_and_epoch():
    def rows(seed, epoch):
        batches = LengthBatches(*make(some_lengths(60)), 8, padding=PADDING, seed=seed, pool=2)
        return [batch.rows.tolist() for batch in batches.epoch(epoch)]

    before = torch.get_rng_state()
    assert rows(1, 0) == rows(1, 0)
    assert len({str(rows(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_is_the_same_everywhere():
    """Worked out once: neither the machine nor a release of numpy or torch may move it."""
    batches = LengthBatches(*make([3, 1, 4, 1, 5, 9, 2, 6]), 2, padding=PADDING)
    assert [batch.rows.tolist() for batch in batches.epoch(0)] == [[7, 5], [3, 1], [6, 0], [2, 4]]


def test_lengths_of_a_batch_are_close_and_batches_come_in_any_order():
    lengths = some_lengths(5_000)
    batches = LengthBatches(*make(lengths), 20, padding=PADDING, pool=50)
    read = list(batches.epoch(0))
    padded = sum(batch.tokens.numel() for batch in read)
    assert batches.waste(0) == pytest.approx(1 - sum(lengths) / padded)
    assert batches.waste(0) < 0.05
    assert LengthBatches(*make(lengths), 20, padding=PADDING, pool=1).waste(0) > 0.5
    longest = [len(batch.tokens) for batch in read]
    assert longest != sorted(longest)
    # A rank pads to its own longest row.
    assert LengthBatches(*make(lengths), 20, padding=PADDING, pool=50, world_size=2).waste(0) < batches.waste(0)


def test_nothing_is_cut_unless_asked():
    lengths = [3, 2_000, 5]
    whole = LengthBatches(*make(lengths), 3, padding=PADDING)
    assert (next(whole.epoch(0)).tokens.shape, whole.truncated) == ((2_000, 3), 0)
    cut = LengthBatches(*make(lengths), 3, padding=PADDING, max_length=4)
    check(next(cut.epoch(0)), [3, 4, 4])
    assert cut.truncated == 2


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 60))
def test_results_come_back_in_the_order_of_the_sequences(lengths, batch_size, max_tokens):
    sequences, labels = make(lengths)
    batches = EvaluationBatches(sequences, labels, batch_size=batch_size, padding=PADDING, max_tokens=max_tokens)
    read = list(batches)
    assert len(read) == len(batches)
    for batch in read:
        check(batch, lengths)
        assert torch.equal(batch.labels, batch.rows)
        assert len(batch.rows) <= batch_size
        assert max_tokens is None or batch.tokens.numel() <= max_tokens or len(batch.rows) == 1
    in_order = torch.cat([batch.lengths for batch in read])
    assert torch.equal(in_order, in_order.sort().values)
    assert batches.restore([batch.lengths for batch in read]).tolist() == lengths
    assert torch.equal(batches.restore([batch.rows.unsqueeze(1) for batch in read]), labels.unsqueeze(1))
    assert batches.waste() == pytest.approx(1 - sum(lengths) / sum(batch.tokens.numel() for batch in read))


def test_texts_to_classify_have_no_labels():
    sequences, _ = make([2, 1])
    batch = next(iter(EvaluationBatches(sequences, batch_size=2, padding=PADDING, max_length=1)))
    assert batch.labels is None
    assert batch.to("cpu").labels is None
    assert batch.tokens.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "LengthBatches: batch_size must be at least 1, got 0"),
        ({"max_length": 0}, "LengthBatches: max_length must be at least 1, got 0"),
        ({"rank": 2, "world_size": 2}, "rank must be 0 to world_size - 1 = 1, got 2"),
        ({"world_size": 3, "rank": 0}, "4 sequences in batches of 2 cannot be divided over 3 ranks; .* A larger"),
        ({"sequences": []}, "LengthBatches: there are no sequences"),
        ({"labels": torch.zeros(3)}, r"labels must be \(N,\) = \(4,\), one a sequence, got \(3,\)"),
        ({"sequences": make([1, 0, 2, 3])[0]}, "every sequence must have a token, sequence number 1 has none"),
    ],
)
def test_what_does_not_go(arguments, message):
    sequences, labels = make([1, 2, 3, 4])
    with pytest.raises(ValueError, match=message):
        LengthBatches(**{"sequences": sequences, "labels": labels, "batch_size": 2, "padding": 0, **arguments})


@pytest.mark.parametrize("start", [-1, 3])
def test_a_start_outside_of_the_epoch(start):
    with pytest.raises(ValueError, match=f"an epoch has 2 batches, so start must be 0 to 2, got {start}"):
        LengthBatches(*make([1, 2, 3]), 2, padding=0).epoch(0, start)
