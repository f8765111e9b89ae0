"""Runs the notebooks, and writes them with their outputs and pictures: `python -m tools.notebooks`.

`--clear` removes outputs, execution counts and the metadata of editors from the files of the notebooks instead: git
keeps no output. `tests/unit/test_notebook_files.py` checks that.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from base64 import b64decode
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parents[1] / "notebooks"
CELL_SECONDS = 600
"""The time limit of a cell: a busy machine takes many times longer than an idle one."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main() -> None:
    parser = ArgumentParser(
        description=(__doc__ or "").replace("`", ""),
        epilog="example: python -m tools.notebooks 1_ingest",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="names of notebooks without suffix; all of them if there is none")
    parser.add_argument("--out", type=Path, default=Path("build/notebooks"), help="folder of the outputs")
    parser.add_argument("--clear", action="store_true", help="clear the files instead of running them")
    options = parser.parse_args()
    paths = [FOLDER / f"{name}.ipynb" for name in options.names] or list_notebooks()
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        if options.clear:
            nbformat.write(clear_notebook(notebook), path)
            continue
        print(f"{path.name} ...", file=sys.stderr)
        for file in write_outputs(run_notebook(notebook), path.stem, options.out):
            print(file)


def list_notebooks() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def run_notebook(notebook: Any) -> Any:
    """Returns a copy with the outputs of all cells. Raises CellExecutionError for a cell that fails."""
    executed = deepcopy(notebook)
    resources = {"metadata": {"path": str(FOLDER)}}
    with TemporaryDirectory() as sockets:
        # over unix sockets: TCP would need free ports, and is not encrypted
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        config.KernelManager.shutdown_wait_time = CELL_SECONDS  # after a failed cell, the exit removes its store
        NotebookClient(executed, timeout=CELL_SECONDS, resources=resources, config=config).execute()
    return executed


def clear_notebook(notebook: Any) -> Any:
    """Returns a copy without outputs, execution counts and the metadata that editors write."""
    cleared = deepcopy(notebook)
    cleared.metadata = nbformat.from_dict(METADATA)
    for cell in cleared.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return cleared


def write_outputs(executed: Any, name: str, folder: Path) -> Iterator[Path]:
    """Writes the notebook and its pictures, and yields their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(executed, path)
    yield path
    for number, picture in enumerate(list_pictures(executed), start=1):
        picture_path = folder / f"{name}-{number}.png"
        picture_path.write_bytes(picture)
        yield picture_path


def list_pictures(executed: Any) -> list[bytes]:
    """The PNG pictures of an executed notebook, in order."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    return [b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


if __name__ == "__main__":
    main()
