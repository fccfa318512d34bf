import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quasirnn.data.batches import IGNORE, EvaluationStreams, Streams


@pytest.mark.parametrize(("size", "batch_size", "length"), [(101, 4, 7), (9, 2, 3), (2, 1, 5), (64, 7, 1)])
def test_windows_join_up_to_contiguous_streams(size, batch_size, length):
    streams = Streams(torch.arange(size), batch_size, length)
    windows = list(streams)
    assert len(windows) == len(streams)
    inputs = torch.cat([x for x, _ in windows])  # (steps, B)
    targets = torch.cat([y for _, y in windows])
    assert torch.equal(targets, inputs + 1)
    steps = (size - 1) // batch_size
    assert torch.equal(inputs.T.flatten(), torch.arange(steps * batch_size))


def test_too_short_a_text_says_what_is_needed():
    with pytest.raises(ValueError, match="a sequence of 4 cannot be split into 4 streams; at least 5 are needed"):
        Streams(torch.arange(4), batch_size=4, length=2)


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_ranks_side_by_side_are_the_streams_of_one_process(world_size):
    ids = torch.randint(50, (101,))
    whole = list(Streams(ids, batch_size=6, length=5))
    ranks = [Streams(ids, batch_size=6, length=5, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert {len(rank) for rank in ranks} == {len(whole)}
    for (x, y), *shares in zip(whole, *ranks, strict=True):
        assert torch.equal(torch.cat([x for x, _ in shares], dim=1), x)
        assert torch.equal(torch.cat([y for _, y in shares], dim=1), y)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pass_resumes_at_any_window(rank):
    streams = Streams(torch.arange(59), batch_size=4, length=4, rank=rank, world_size=2)
    whole = list(streams)
    for start in range(len(streams) + 1):
        rest = list(streams.windows(start))
        assert len(rest) == len(whole) - start
        for (x, y), (expected_x, expected_y) in zip(rest, whole[start:], strict=True):
            assert torch.equal(x, expected_x)
            assert torch.equal(y, expected_y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 5, "world_size": 2}, r"got batch_size 5 over 2\. batch_size=6\?"),
        ({"rank": 2, "world_size": 2}, "rank must be 0 to world_size - 1 = 1, got 2"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"length": 0}, "length must be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_go(arguments, message):
    with pytest.raises(ValueError, match=message):
        Streams(torch.arange(50), **{"batch_size": 2, "length": 2, **arguments})


@pytest.mark.parametrize("start", [-1, 6])
def test_a_start_outside_of_the_pass(start):
    with pytest.raises(ValueError, match=f"a pass has 5 windows, so start must be 0 to 5, got {start}"):
        Streams(torch.arange(21), batch_size=2, length=2).windows(start)


@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 9), st.integers(0, 70))
def test_in_evaluation_every_token_after_the_first_counts_once(size, length, batch_size, context):
    ids = torch.arange(size)
    streams = EvaluationStreams(ids, length, batch_size=batch_size, context=context)
    windows = list(streams)
    assert len(windows) == len(streams)
    assert all(1 <= len(x) <= length for x, _ in windows)
    inputs = torch.cat([x for x, _ in windows])  # (steps, B)
    targets = torch.cat([y for _, y in windows])
    counted = targets != IGNORE
    assert sorted(targets[counted].tolist()) == list(range(1, size))
    assert streams.targets == size - 1
    assert torch.equal(targets[counted], inputs[counted] + 1)
    # Every stream is contiguous as far as it counts, and has read its context before.
    enough = min(context, size - 2)
    for column, counts in zip(inputs.T, counted.T, strict=True):
        read = column[: int(counts.nonzero().max()) + 1] if counts.any() else column[:0]
        assert torch.equal(read, column[0] + torch.arange(len(read)))
        if counts.any():
            assert column[0] == 0 or int(counts.nonzero().min()) == enough


def test_one_stream_is_exact():
    """As the default: every token has all the text before it as context, and no target is left out."""
    ids = torch.arange(82_430)
    windows = list(EvaluationStreams(ids, length=1000))
    assert torch.equal(torch.cat([x for x, _ in windows]).squeeze(1), ids[:-1])
    assert torch.equal(torch.cat([y for _, y in windows]).squeeze(1), ids[1:])


@pytest.mark.parametrize(
    ("size", "arguments", "message"),
    [
        (1, {}, "a text of 1 is too short; at least 2 are needed"),
        (9, {"context": -1}, "context must be at least 0, got -1"),
        (9, {"batch_size": 0}, "EvaluationStreams: batch_size must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_evaluated(size, arguments, message):
    with pytest.raises(ValueError, match=message):
        EvaluationStreams(torch.arange(size), 5, **arguments)
