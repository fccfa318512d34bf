import pytest


@pytest.fixture
def write(tmp_path):
    """Writes files, given by name, and returns their folder."""

    def make(files, folder="."):
        for name, content in files.items():
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / folder

    return make
