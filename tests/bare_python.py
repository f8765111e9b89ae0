"""A Python environment with the requirements of the project, but without the project itself."""

import sys
import sysconfig
from pathlib import Path

PROJECT = ("rag_core", "jobs", "serve", "rag_cli", "rag_on_ray")


def create_bare_python(folder: Path, *without: str) -> Path:
    """Returns the interpreter of the environment. Each installed package is a link, except `without`.

    Files such as `*.pth` are left out, because an editable installation of the project consists of them.
    """
    installed = Path(sysconfig.get_path("purelib"))
    library = folder / "lib" / installed.parent.name / "site-packages"
    library.mkdir(parents=True)
    excluded = (*PROJECT, *without)
    for entry in installed.iterdir():
        name = entry.name.replace("-", "_").lower()
        if not name.startswith((*excluded, "__")) and entry.suffix != ".pth":
            (library / entry.name).symlink_to(entry)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    return python
