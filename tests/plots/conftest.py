import pytest
from matplotlib.figure import Figure


@pytest.fixture
def figures(monkeypatch):
    """The figures that have been written so far, for a closer look."""
    written, write = [], Figure.savefig

    def savefig(figure, *arguments, **options):
        write(figure, *arguments, **options)
        written.append(figure)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return written
