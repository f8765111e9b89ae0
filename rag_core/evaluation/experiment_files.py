"""The experiments of a folder: NAME/experiment.yaml describes one, NAME/*.jsonl are its exposures."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from rag_core.answering.split import Experiment
from rag_core.config import Section
from rag_core.errors import DatasetError, NotFoundError, validation_lines
from rag_core.evaluation.experiments import ExperimentReport, report_experiment
from rag_core.evaluation.exposures import read_observations
from rag_core.types import DEFAULT_TENANT

FILE_NAME = "experiment.yaml"


class ExperimentDescription(Section):
    """`share` is the share of conversations that get the treatment, `effect` the difference worth finding."""

    share: float = Field(0.5, gt=0, lt=1)
    effect: float = Field(0.05, gt=0)
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    name: str
    folder: Path
    description: ExperimentDescription

    @property
    def experiment(self) -> Experiment:
        return Experiment(name=self.name, share=self.description.share)

    def report(self) -> ExperimentReport:
        """Raises DatasetError for an invalid exposure, and UsageError if a variant has no observation."""
        observations = read_observations(sorted(self.folder.glob("*.jsonl")), self.name)
        return report_experiment(list(observations), self.description.share, self.description.effect)


def list_experiments(folder: Path, tenant: str) -> list[StoredExperiment]:
    """The experiments of the tenant by name. Raises DatasetError for an invalid description."""
    experiments = [_read_experiment(path) for path in sorted(folder.glob(f"*/{FILE_NAME}"))]
    return [experiment for experiment in experiments if experiment.description.tenant == tenant]


def find_experiment(folder: Path, tenant: str, name: str) -> StoredExperiment:
    """Raises NotFoundError if the tenant has no such experiment."""
    for experiment in list_experiments(folder, tenant):
        if experiment.name == name:
            return experiment
    raise NotFoundError(f"there is no experiment {name}; GET /v1/experiments lists them")


def _read_experiment(path: Path) -> StoredExperiment:
    try:
        description = ExperimentDescription.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DatasetError(f"{path} cannot be read as an experiment: {error}") from error
    except ValidationError as error:
        raise DatasetError("; ".join(validation_lines(error, str(path)))) from None
    return StoredExperiment(name=path.parent.name, folder=path.parent, description=description)
