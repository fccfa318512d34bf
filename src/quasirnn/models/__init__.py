"""Layers to task outputs, and decoding. Works on ids, never on text; of files it knows a model's own two only."""

from quasirnn.models.beam_search import beam_search
from quasirnn.models.decoding_single import greedy, sample
from quasirnn.models.language_model import LanguageModel
from quasirnn.models.sampling import Sampler
from quasirnn.models.sequence_classifier import SequenceClassifier
from quasirnn.models.translator import Translator

__all__ = ["LanguageModel", "Sampler", "SequenceClassifier", "Translator", "beam_search", "greedy", "sample"]
