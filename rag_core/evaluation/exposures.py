"""The exposures of experiments as lines of JSON: a SplitAnswerer writes them, `rag experiment` reads them.

A line can also have `quality`, a number that was added afterwards, such as a judge's score or a user's rating.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from rag_core.errors import DatasetError, first_line
from rag_core.evaluation.experiments import Observation
from rag_core.storage.exposures import Exposure

_EXPOSURE, _QUALITY = TypeAdapter(Exposure), TypeAdapter(float | None)


@dataclass(frozen=True, slots=True)
class ExposureFile:
    """A file that each exposure is appended to. Each replica requires its own file."""

    path: Path

    def __call__(self, exposure: Exposure) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(exposure))}\n")


def read_observations(paths: Iterable[Path], experiment: str) -> Iterator[Observation]:
    """Yields the observations of one experiment. Raises DatasetError for a line that breaks a rule."""
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path} must be exposures as JSON lines in UTF-8: {error}") from error
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                exposure, quality = _EXPOSURE.validate_python(row), _QUALITY.validate_python(row.get("quality"))
            except ValueError as error:
                raise DatasetError(f"{path}:{number}: a line must be an exposure: {first_line(error)}") from error
            if exposure.experiment == experiment:
                yield Observation(exposure=exposure, quality=quality)
