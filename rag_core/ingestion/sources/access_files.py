"""Access files: YAML files with the groups that can read the documents next to them.

`report.pdf.access.yaml` is for one file, `.access.yaml` for a folder and the folders in it. The nearest one counts. The
content is `groups: [hr, legal]`; an empty list lets everyone of the tenant read. Access files are not ingested.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, TypeAlias

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rag_core.errors import DocumentError, ListingError, first_line, validation_lines
from rag_core.types import UNSTORABLE

SUFFIX = ".access.yaml"
MAX_BYTES = 65_536

Groups: TypeAlias = tuple[str, ...]


def _check_storable(name: str) -> str:
    if UNSTORABLE.search(name):
        raise ValueError("a group must not contain NUL or lone surrogates")
    return name


class _AccessFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    groups: list[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_storable)]]


class AccessFiles:
    """The access files of a source. Paths are relative to its root, with slashes.

    `read` returns the first bytes of a file, one more than `MAX_BYTES` at most.
    """

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        self._paths: set[str] = set()
        self._groups: dict[str, Groups] = {}

    def add(self, paths: Iterable[str]) -> None:
        """Adds access files. Those of a folder are added before the groups of its files are looked up."""
        self._paths.update(paths)

    def find_groups(self, path: str) -> Groups | None:
        """The groups of the file's nearest list; None if it has none. Raises ListingError if the list is not valid."""
        if not self._paths:
            return None
        nearest = next((candidate for candidate in _list_candidates(path) if candidate in self._paths), None)
        if nearest is None:
            return None
        if nearest not in self._groups:
            self._groups[nearest] = self._read_groups(nearest)
        return self._groups[nearest]

    def _read_groups(self, path: str) -> Groups:
        try:
            return parse_access_file(path, self._read(path))
        except DocumentError as error:
            raise ListingError(f"the access file {path!r} cannot be read: {error.reason}") from error


def is_access_file(path: str) -> bool:
    return path.endswith(SUFFIX)


def parse_access_file(path: str, body: bytes) -> Groups:
    """Raises ListingError if the file is not valid: a mistake in it must not open the documents."""
    if len(body) > MAX_BYTES:
        raise ListingError(f"the access file {path!r} must have at most {MAX_BYTES} bytes")
    try:
        return tuple(_AccessFile.model_validate(yaml.safe_load(body)).groups)
    except ValidationError as error:
        reasons = "; ".join(validation_lines(error, "the file"))
        raise ListingError(f"the access file {path!r} must be `groups: [NAME, ...]`: {reasons}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ListingError(f"the access file {path!r} is not YAML: {first_line(error)}") from error


def _list_candidates(path: str) -> Iterator[str]:
    """Yields the paths of the access files that a file can have, nearest first."""
    yield path + SUFFIX
    while path:
        path = path.rpartition("/")[0]
        yield f"{path}/{SUFFIX}" if path else SUFFIX
