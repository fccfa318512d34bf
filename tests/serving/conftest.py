"""A server with tiny models of all tasks, which tests share."""

from pathlib import Path

import pytest

from quasirnn.serving.app import PageFile
from quasirnn.serving.loaded import Models, load_models
from serving.servers import Served, serving
from tasks import tiny_language_model, tiny_sentiment, tiny_translation

# What is costly to set up is set up once.
GROUP = pytest.mark.xdist_group("serving")

PAGE = {
    "index.html": PageFile(b"<p>page", "text/html; charset=utf-8"),
    "api.html": PageFile(b"<p>api", "text/html; charset=utf-8"),
    "a.js": PageFile(b"1", "text/javascript"),
}
# The model card of `qrnn`.
CARD = "# A classifier\n\nBad at irony: \u201cgreat\u201d.\n"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(GROUP)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run folders: `qrnn`, `lstm` and `other` of sentiment, `word` and `character`, `translator`."""
    folder = tmp_path_factory.mktemp("served")
    labelled = tiny_sentiment.write_labelled(folder / "labelled")
    tiny_sentiment.train_tiny(folder / "qrnn", labelled, "epochs=1")
    (folder / "qrnn" / "README.md").write_text(CARD, encoding="utf-8")
    tiny_sentiment.train_tiny(folder / "lstm", labelled, "max_steps=1", cell="lstm")
    tiny_sentiment.train_tiny(folder / "other", labelled, "max_steps=1", "seed=2", "pooling=ifo", "max_length=20")
    texts = tiny_language_model.write_texts(folder / "texts")
    tiny_language_model.train_tiny(folder / "word", texts, "max_steps=1")
    tiny_language_model.train_tiny(folder / "character", texts, "level=character", "max_steps=2")
    pairs = tiny_translation.write_paired(folder / "pairs")
    tiny_translation.train_tiny(folder / "translator", pairs, "max_steps=20")
    return folder


@pytest.fixture(scope="session")
def models(runs) -> Models:
    return load_models([runs / name for name in ("qrnn", "lstm", "other", "word", "character", "translator")])


@pytest.fixture(scope="module")
def served(models) -> Served:
    with serving(*models.loaded, page=PAGE) as server:
        yield server
