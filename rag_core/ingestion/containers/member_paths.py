"""The paths of members, made from the names in a container. Nothing is ever written to them."""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from unicodedata import normalize

_MAX_PATH = 500
"""Characters. The name in a zip can have 65,535 bytes, the id of a pushed document 2,000."""
_HIDDEN_FOLDERS, _HIDDEN_NAMES, _RESOURCE_FORK = {"__MACOSX"}, {".DS_Store", "Thumbs.db"}, "._"


def assign_paths(names: Iterable[str]) -> dict[str, str]:
    """The names by path. Different names never share a path: the second becomes `keys (2).md`.

    Names without a path are left out, and so are the resource files of macOS and Windows.
    """
    names_by_path: dict[str, str] = {}
    repetitions: Counter[str] = Counter()
    for name in names:
        path = numbered = normalize_path(name)
        while numbered in names_by_path:
            repetitions[path] += 1
            numbered = _number_path(path, repetitions[path] + 1)
        if path:
            names_by_path[numbered] = name
    return names_by_path


def normalize_path(name: str) -> str:
    """A relative path in NFC with `/` and without `..`; empty for a name that is left out.

    A hash replaces the folders of a very long path.
    """
    parts = [part for part in normalize("NFC", name).replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if not parts or parts[-1] in _HIDDEN_NAMES or parts[-1].startswith(_RESOURCE_FORK) or parts[0] in _HIDDEN_FOLDERS:
        return ""
    path = "/".join(parts)
    return path if len(path) <= _MAX_PATH else f"{_digest(path)}-{parts[-1][-100:]}"


def _number_path(path: str, number: int) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.partition(".")
    return f"{folder}{slash}{stem} ({number}){dot}{suffix}"


def _digest(path: str) -> str:
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
