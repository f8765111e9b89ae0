"""Experiments with retrievers: one JSON file each, and a report that compares them."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from rag_core.errors import NotFoundError, UsageError, validation_lines
from rag_core.hyperkb.evaluation.comparison_report import write_comparison
from rag_core.hyperkb.evaluation.experiment import Experiment

MAX_NAME_BYTES = 100
"""The number of bytes, in UTF-8, of an experiment's name that its id has: names of files are limited."""


@dataclass(frozen=True)
class ExperimentTracker:
    """Experiments in a folder, each in a file that is named by its id."""

    folder: Path = Path("experiments/results")

    def create_experiment(
        self,
        experiment_name: str,
        description: str = "",
        retriever_type: str = "",
        retriever_params: Mapping[str, Any] | None = None,
        dataset_name: str = "",
    ) -> str:
        """Returns the id of a new experiment: its name, with a number if that name was used before.

        Raises UsageError if the name has no letter or digit, or a parameter is not JSON.
        """
        words = re.sub(r"[^\w.-]+", "-", experiment_name)
        name = words.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip("-._")
        if not name:
            raise UsageError(f"experiment_name must contain a letter or a digit, got {experiment_name!r}")
        values = {
            "experiment_name": experiment_name,
            "description": description,
            "retriever_type": retriever_type,
            "retriever_params": dict(retriever_params or {}),
            "dataset_name": dataset_name,
            "created_at": datetime.now(UTC),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        ids = chain([name], (f"{name}-{number}" for number in count(2)))
        return next(id for id in ids if self._create(_validate({"experiment_id": id, **values})))

    def log_result(
        self, experiment_id: str, metrics: Mapping[str, float], latency_stats: Mapping[str, float] | None = None
    ) -> None:
        """Stores the result: measures by name, such as `ndcg@10`, and milliseconds by name, such as `p95`.

        Raises UsageError if a value is not a finite number or the experiment has a result, and NotFoundError if there
        is no such experiment.
        """
        experiment = self.read_experiment(experiment_id)
        if experiment.result:
            raise UsageError(f"experiment {experiment_id!r} has a result already; create another experiment")
        result = {"metrics": metrics, "latency_stats": latency_stats or {}, "logged_at": datetime.now(UTC)}
        written = self._write_temporary(_validate({**experiment.model_dump(), "result": result}))
        written.replace(self._path(experiment_id))

    def generate_comparison_report(self, experiment_ids: Sequence[str], output_file: str | Path) -> Path:
        """Writes the experiments side by side as Markdown, with two charts in SVG files next to it.

        Raises UsageError if an id occurs twice or an experiment has no result, and NotFoundError for an unknown id.
        """
        if not experiment_ids or len(set(experiment_ids)) < len(experiment_ids):
            raise UsageError(f"a comparison requires different experiments, got {', '.join(experiment_ids) or 'none'}")
        experiments = [self.read_experiment(id) for id in experiment_ids]
        if missing := [experiment.experiment_id for experiment in experiments if not experiment.result]:
            raise UsageError(f"experiments without a result cannot be compared: {', '.join(missing)}")
        return write_comparison(Path(output_file), experiments)

    def read_experiment(self, experiment_id: str) -> Experiment:
        """Raises NotFoundError for an unknown id, and UsageError for a damaged file."""
        path = self._path(experiment_id)
        if path.parent != self.folder or not path.is_file():
            raise NotFoundError(f"there is no experiment {experiment_id!r} in {self.folder}")
        try:
            return Experiment.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise UsageError("; ".join(validation_lines(error, str(path)))) from None

    def _create(self, experiment: Experiment) -> bool:
        """False if the id is in use. Of two processes with the same id, one succeeds."""
        written = self._write_temporary(experiment)
        try:
            os.link(written, self._path(experiment.experiment_id))
        except FileExistsError:
            return False
        finally:
            written.unlink()
        return True

    def _write_temporary(self, experiment: Experiment) -> Path:
        path = self.folder / f".{experiment.experiment_id}.{uuid4()}"
        path.write_text(experiment.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path

    def _path(self, experiment_id: str) -> Path:
        return self.folder / f"{experiment_id}.json"


def _validate(values: Mapping[str, Any]) -> Experiment:
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise UsageError("; ".join(validation_lines(error))) from None
