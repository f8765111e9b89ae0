"""The pages of the reference, by file name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference.commands import render_commands
from tools.reference.nodes import render_nodes
from tools.reference.python_api import render_python
from tools.reference.routes import render_routes
from tools.reference.settings import render_settings

PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": render_settings,
    "cli.md": render_commands,
    "http.md": render_routes,
    "python.md": render_python,
    "nodes.md": render_nodes,
}


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (folder / name).write_text(render())
