"""Writes the pages of docs/reference: `python -m tools.reference`."""

from pathlib import Path

from tools.reference.pages import write_pages

if __name__ == "__main__":
    write_pages(Path("docs/reference"))
