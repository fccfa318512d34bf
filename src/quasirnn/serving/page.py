"""The web page: files that are packaged with the program, all read when the server starts."""

from dataclasses import dataclass
from importlib.resources import files

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
START, API = "index.html", "api.html"


@dataclass(frozen=True)
class PageFile:
    content: bytes
    kind: str


def read_page() -> dict[str, PageFile]:
    """The files of the page by name; none if they were not packaged. A request can ask for these names only."""
    folder = files("quasirnn.serving") / "page"
    if not folder.is_dir():
        return {}
    return {
        file.name: PageFile(file.read_bytes(), KINDS[suffix])
        for file in folder.iterdir()
        if file.is_file() and (suffix := "." + file.name.rpartition(".")[2]) in KINDS
    }
