import pytest
import torch

from quasirnn.data.streams import Streams


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
    with pytest.raises(ValueError, match="a sequence of 4 cannot be cut into 4 streams; at least 5 are needed"):
        Streams(torch.arange(4), batch_size=4, length=2)
