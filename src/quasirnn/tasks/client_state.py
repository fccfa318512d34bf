"""A classifier's state in the middle of a text, kept by the client: the server stores nothing between requests.

    base64url of   magic   fingerprint of the model   words read   h, c, total as float32   checksum

A state from a client is not trusted: its length, checksum, model and every number are checked.
"""

import base64
import binascii
import hashlib
import math
import struct
import zlib
from typing import Any

import torch
from torch import Tensor

from quasirnn.models.sequence_classifier import Reading
from quasirnn.tasks.pipeline import Pipeline

MAGIC = b"qrn1"
STATE_CHARACTERS = 128 * 1024
# Longer than any text; the sum of so many outputs is still accurate enough in float32.
MOST_WORDS = 2**31

_HEAD = struct.Struct("<4s16sQ")  # magic, fingerprint, words
_CHECKSUM = struct.Struct("<I")


class StateError(ValueError):
    """A state that cannot be continued; the message follows the name of the field."""


class StateFormat:
    """States of one model as text and back.

    states = StateFormat(pipeline)
    reader = pipeline.reader(states.unpack(text))
    """

    def __init__(self, model: Pipeline[Any]) -> None:
        self.fingerprint = fingerprint(model)
        # One word shows the shapes; any will do.
        _, reading = model.model.read(torch.zeros(1, 1, dtype=torch.int64, device=model.device))
        self._shapes = [tuple(tensor.shape) for tensor in _tensors(reading)]
        self._types = [tensor.dtype for tensor in _tensors(reading)]
        self._device = model.device
        numbers = sum(map(math.prod, self._shapes))
        self.characters = math.ceil((_HEAD.size + 4 * numbers + _CHECKSUM.size) / 3) * 4

    @property
    def fits(self) -> bool:
        """Whether a request has room for a state of this model."""
        return self.characters <= STATE_CHARACTERS

    def pack(self, reading: Reading | None) -> str:
        """The state as text; so is None, the state before the first word."""
        data = _HEAD.pack(MAGIC, self.fingerprint, 0 if reading is None else reading.count)
        if reading is not None:
            data += b"".join(tensor.float().cpu().contiguous().numpy().tobytes() for tensor in _tensors(reading))
        return base64.urlsafe_b64encode(data + _CHECKSUM.pack(zlib.crc32(data))).decode("ascii")

    def unpack(self, text: str) -> Reading | None:
        """The inverse of `pack`.

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
        magic, stored, count = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise StateError("is of another version; begin anew with null.")
        if stored != self.fingerprint:
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
        h, c, total, *largest = (part.to(self._device, dtype) for part, dtype in zip(parts, self._types, strict=True))
        return Reading((h, c), total, count, *largest)


def fingerprint(model: Pipeline[Any]) -> bytes:
    """16 bytes that identify a model by weights, vocabulary and configuration; copies of a run have the same."""
    digest = hashlib.sha256(repr(sorted(model.model.config.items())).encode())
    digest.update(model.vocabulary.to_json().encode())
    for name, tensor in model.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()[:16]


def _tensors(reading: Reading) -> list[Tensor]:
    return [*reading.state, reading.total, *([] if reading.largest is None else [reading.largest])]
