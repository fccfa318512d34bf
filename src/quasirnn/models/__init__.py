"""Models for the paper's three tasks, and decoding. They work on ids, never on text, and read and write two files."""

from quasirnn.models.beam_search import beam_search
from quasirnn.models.decoding import greedy, sample
from quasirnn.models.language_model import LanguageModel
from quasirnn.models.sampling import Sampler
from quasirnn.models.sequence_classifier import SequenceClassifier
from quasirnn.models.translator import Translator

__all__ = ["LanguageModel", "Sampler", "SequenceClassifier", "Translator", "beam_search", "greedy", "sample"]
