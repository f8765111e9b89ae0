"""`/v1/experiments`: the experiment of this gateway and those that are stored, and the variants that they assign."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from rag_core.answering.split import Experiment
from rag_core.errors import NotFoundError, UsageError
from rag_core.evaluation.experiments import Observation, report_experiment
from rag_core.storage.exposures import Exposures, StoredExperiment
from rag_core.wire.experiments import Assignment, Experiments, ListedExperiment, ShownExperiment
from serve.bodies.fields import MAX_CONVERSATION_ID_CHARS
from serve.bodies.openapi import success_response
from serve.http.cursors import PageParameters, build_listing
from serve.http.dependencies import CurrentServices, Evaluator
from serve.http.responses import json_response
from serve.services import Services

router = APIRouter()


class Unit(BaseModel):
    """The conversation to assign."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: str = Field(
        min_length=1,
        max_length=MAX_CONVERSATION_ID_CHARS,
        description="the `conversation_id` of the conversation",
        examples=["7f0c9a52"],
    )


class ReportParameters(BaseModel):
    """The query parameters of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    effect: float = Field(0.05, ge=0.0001, le=1, description="the difference in quality that is worth finding")


@router.get("/v1/experiments", responses=success_response(Experiments))
def experiments(page: Annotated[PageParameters, Query()], caller: Evaluator, services: CurrentServices) -> Response:
    """Lists experiments by name, with the number of conversations of each variant."""
    listing = build_listing(services, caller, "name", "experiments")
    after = listing.decode_cursor(page.cursor, "")
    with services.postgres.connect() as connection:
        stored = _list_experiments(services, Exposures(connection, caller.tenant))
    described = [_describe(experiment, services) for experiment in stored]
    rows, paging = listing.split_page([row for row in described if row["name"] > after][: page.fetch_limit], page.limit)
    return json_response(Experiments(data=[ListedExperiment(**row) for row in rows], **paging))


@router.get("/v1/experiments/{name}", responses=success_response(ShownExperiment))
def experiment(
    name: str, parameters: Annotated[ReportParameters, Query()], caller: Evaluator, services: CurrentServices
) -> Response:
    """Returns an experiment with its report: is the split right, is the treatment better, is a guardrail broken?

    Readers' ratings are the quality.
    """
    with services.postgres.connect() as connection:
        exposures = Exposures(connection, caller.tenant)
        stored = _find_experiment(services, exposures, name)
        observations = [Observation(exposure=exposure, quality=quality) for exposure, quality in exposures.read(name)]
    try:
        report, reason = asdict(report_experiment(observations, parameters.effect)), ""
    except UsageError as error:
        report, reason = None, str(error)
    return json_response(ShownExperiment(**_describe(stored, services), report=report, reason=reason))


@router.get("/v1/experiments/{name}/assignment", responses=success_response(Assignment))
def assignment(name: str, unit: Annotated[Unit, Query()], caller: Evaluator, services: CurrentServices) -> Response:
    """Returns the variant that a conversation gets. It is always the same one while the share stays the same."""
    with services.postgres.connect() as connection:
        share = _find_experiment(services, Exposures(connection, caller.tenant), name).share
    experiment = Experiment(name=name, share=share)
    bucket = experiment.bucket(caller.tenant, unit.unit)
    variant = experiment.variant(bucket)
    return json_response(Assignment(experiment=name, unit=unit.unit, variant=variant, bucket=bucket))


def _list_experiments(services: Services, exposures: Exposures) -> list[StoredExperiment]:
    """The stored experiments, and the gateway's own one with its current share, by name."""
    stored = {one.name: one for one in exposures.list_experiments()}
    if running := services.settings.experiment:
        counts = stored.get(running.name)
        stored[running.name] = StoredExperiment(
            name=running.name,
            share=running.share,
            control=counts.control if counts else 0,
            treatment=counts.treatment if counts else 0,
        )
    return sorted(stored.values(), key=lambda one: one.name)


def _find_experiment(services: Services, exposures: Exposures, name: str) -> StoredExperiment:
    """Raises NotFoundError if the tenant has no such experiment."""
    for experiment in _list_experiments(services, exposures):
        if experiment.name == name:
            return experiment
    raise NotFoundError(f"there is no experiment {name}; GET /v1/experiments lists them")


def _describe(experiment: StoredExperiment, services: Services) -> dict[str, Any]:
    running = services.settings.experiment
    return {
        "name": experiment.name,
        "running": running is not None and running.name == experiment.name,
        "share": experiment.share,
        "conversations": {"control": experiment.control, "treatment": experiment.treatment},
    }
