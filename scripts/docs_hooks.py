"""Hooks of mkdocs: what stands beside docs/ in the repository, and links that lead there, as pages of the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """README.md as a page, and the examples as files that can be read."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "project.md", content=_from_root(readme)))
    for example in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{example.name}", abs_src_path=str(example)))
    return files


def on_page_markdown(markdown: str, page: Any, **unused: Any) -> str:
    markdown = markdown.replace("](../README.md)", "](project.md)").replace("](../examples/", "](examples/")
    # Folders of records and of examples are in the repository only.
    return re.sub(r"\[([^\]]*)\]\((?:results|examples)(?:/[\w-]+)?\)", r"\1", markdown)


def _from_root(markdown: str) -> str:
    """Links of the README as seen from docs/; those to files that are no pages are left as text."""
    markdown = re.sub(r"(\]\(|src=\")docs/", r"\1", markdown)
    return re.sub(r"\[([^\]]*)\]\((?:CONTRIBUTING|CHANGELOG|LICENSE)[^)]*\)", r"\1", markdown)
