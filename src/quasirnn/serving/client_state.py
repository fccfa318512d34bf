"""Where a classifier stands in a text, in a form that the client keeps: the server remembers nothing between requests.

    base64url of   magic   fingerprint of the model   words read   h, c, total as float32   checksum

A state comes back from outside and is believed in nothing: length, checksum, model, and every number are looked at.
"""

import base64
import binascii
import hashlib
import math
import struct
import zlib

import torch
from torch import Tensor

from quasirnn.models.sequence_classifier import Reading
from quasirnn.serving import limits
from quasirnn.tasks.sentiment_text import SentimentOnText

MAGIC = b"qrn1"
# Longer than any text: the sum of so many outputs still means something in float32.
MOST_WORDS = 2**31

_HEAD = struct.Struct("<4s16sQ")  # magic, fingerprint, words
_CHECKSUM = struct.Struct("<I")


class StateError(ValueError):
    """A state that cannot be gone on from; the message goes on from its name."""


class StateFormat:
    """States of one model as text and back.

    states = StateFormat(sentiment)
    reader = sentiment.reader(states.unpack(text))
    """

    def __init__(self, model: SentimentOnText) -> None:
        self.fingerprint = fingerprint(model)
        # One word shows the shapes; any will do.
        _, reading = model.model.read(torch.zeros(1, 1, dtype=torch.int64, device=model.device))
        self._shapes = [tuple(tensor.shape) for tensor in _tensors(reading)]
        self._device = model.device
        numbers = sum(map(math.prod, self._shapes))
        self.characters = math.ceil((_HEAD.size + 4 * numbers + _CHECKSUM.size) / 3) * 4

    @property
    def fits(self) -> bool:
        """Whether a request has room for a state of this model."""
        return self.characters <= limits.STATE_CHARACTERS

    def pack(self, reading: Reading | None) -> str:
        """The state as text; None, before the first word, too."""
        data = _HEAD.pack(MAGIC, self.fingerprint, 0 if reading is None else reading.count)
        if reading is not None:
            data += b"".join(tensor.float().cpu().contiguous().numpy().tobytes() for tensor in _tensors(reading))
        return base64.urlsafe_b64encode(data + _CHECKSUM.pack(zlib.crc32(data))).decode("ascii")

    def unpack(self, text: str) -> Reading | None:
        """What `pack` was given.

        Raises:
            StateError: it is something else.
        """
        try:
            packed = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise StateError("is not one that this server gave: it is no base64url.") from None
        data, checksum = packed[: -_CHECKSUM.size], packed[-_CHECKSUM.size :]
        if len(data) < _HEAD.size or checksum != _CHECKSUM.pack(zlib.crc32(data)):
            raise StateError("was cut off or changed on the way; begin anew with null.")
        magic, found, count = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise StateError("is of another version; begin anew with null.")
        if found != self.fingerprint:
            raise StateError("is of another model; begin anew with null.")
        return self._reading(data[_HEAD.size :], count)

    def _reading(self, data: bytes, count: int) -> Reading | None:
        sizes = [math.prod(shape) for shape in self._shapes]
        if len(data) != (4 * sum(sizes) if count else 0) or count > MOST_WORDS:
            raise StateError("does not have the size of this model's; begin anew with null.")
        if not count:
            return None
        numbers = torch.frombuffer(bytearray(data), dtype=torch.float32)
        if not numbers.isfinite().all():
            raise StateError("holds numbers that are not finite; begin anew with null.")
        parts = [part.view(shape) for part, shape in zip(numbers.split(sizes), self._shapes, strict=True)]
        h, c, total = (part.to(self._device) for part in parts)
        return Reading((h, c), total, count)


def fingerprint(model: SentimentOnText) -> bytes:
    """16 bytes that tell models apart by their weights, vocabulary and numbers; a copy of a run has the same."""
    found = hashlib.sha256(repr(sorted(model.model.config.items())).encode())
    found.update(model.vocabulary.to_json().encode())
    for name, tensor in model.model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return found.digest()[:16]


def _tensors(reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    return *reading.state, reading.total
