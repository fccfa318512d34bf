"""Translate with the ONNX files of a trained translator. Needs only numpy and onnxruntime, not torch or quasirnn.

    quasirnn export runs/translation --onnx translator.onnx
    python examples/onnx_translate.py runs/translation translator.onnx "drei Uhr" "zwei"

Decoding is greedy: it takes the most probable character at every step. All sentences are decoded in one batch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


class Translator:
    def __init__(self, run: str, file: str) -> None:
        vocabulary = json.loads((Path(run) / "vocabulary.json").read_text(encoding="utf-8"))
        self.tokens, self.lowercase = vocabulary["tokens"], vocabulary["lowercase"]
        self.number = {token: n for n, token in enumerate(self.tokens)}
        roles = ("padding", "start", "end", "unknown")
        self.padding, self.start, self.end, self.unknown = (self.number[vocabulary["specials"][role]] for role in roles)
        self.encoder = onnxruntime.InferenceSession(Path(file).with_suffix(".encoder.onnx"))
        self.step = onnxruntime.InferenceSession(Path(file).with_suffix(".step.onnx"))

    def translate(self, texts: list[str]) -> list[str]:
        rows = [self.encode(text) for text in texts]
        lengths = np.array([len(row) for row in rows])
        source = np.full((lengths.max(), len(rows)), self.padding)  # (S, B): time comes first
        for n, row in enumerate(rows):
            source[: len(row), n] = row
        memory, values, conditioning, state = self.encoder.run(None, {"source": source, "lengths": lengths})
        fixed = {"memory": memory, "values": values, "lengths": lengths, "conditioning": conditioning}
        token, finished = np.full(len(rows), self.start), np.zeros(len(rows), bool)
        written: list[list[int]] = [[] for _ in rows]
        limits = 3 * lengths + 50
        while not finished.all():
            scores, state, _ = self.step.run(None, {"token": token, "state": state, **fixed})
            scores[:, [self.padding, self.start, self.unknown]] = -np.inf
            token = scores.argmax(1)
            finished |= (token == self.end) | (np.array([len(row) for row in written]) >= limits)
            for n in np.flatnonzero(~finished):
                written[n].append(token[n])
        return ["".join(self.tokens[n] for n in row) for row in written]

    def encode(self, text: str) -> list[int]:
        text = text.lower() if self.lowercase else text
        return [self.number.get(character, self.unknown) for character in text]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    for translation in Translator(sys.argv[1], sys.argv[2]).translate(sys.argv[3:]):
        print(translation)
