"""`/v1/experiments`: the experiments in RAG_HOME/experiments of the gateway's machine, and the variants they assign."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from rag_core.errors import DatasetError, UsageError
from rag_core.evaluation.experiment_files import StoredExperiment, find_experiment, list_experiments
from rag_core.storage.embedded import rag_home
from rag_core.wire.experiments import Assignment, Experiments, ListedExperiment, ShownExperiment
from serve.bodies.fields import MAX_CONVERSATION_ID_CHARS
from serve.bodies.openapi import success_response
from serve.http.cursors import PageParameters, build_listing
from serve.http.dependencies import CurrentCaller, CurrentServices
from serve.http.responses import json_response

router = APIRouter()

INVALID_EXPOSURE = "a file of exposures has an invalid line; `rag experiment` says which"


class Unit(BaseModel):
    """The conversation to assign."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: str = Field(
        min_length=1,
        max_length=MAX_CONVERSATION_ID_CHARS,
        description="the `conversation_id` of the conversation",
        examples=["7f0c9a52"],
    )


@router.get("/v1/experiments", responses=success_response(Experiments))
def experiments(page: Annotated[PageParameters, Query()], caller: CurrentCaller, services: CurrentServices) -> Response:
    """Lists experiments by name, with the share of conversations of each variant."""
    listing = build_listing(services, caller, "name", "experiments")
    after = listing.decode_cursor(page.cursor, "")
    stored = [_describe(experiment) for experiment in list_experiments(rag_home() / "experiments", caller.tenant)]
    rows, paging = listing.split_page([row for row in stored if row["name"] > after][: page.fetch_limit], page.limit)
    return json_response(Experiments(data=[ListedExperiment(**row) for row in rows], **paging))


@router.get("/v1/experiments/{name}", responses=success_response(ShownExperiment))
def experiment(name: str, caller: CurrentCaller) -> Response:
    """Returns an experiment with its report: is the split right, is the treatment better, is a guardrail broken?"""
    stored = find_experiment(rag_home() / "experiments", caller.tenant, name)
    try:
        report, reason = asdict(stored.report()), ""
    except UsageError as error:
        report, reason = None, INVALID_EXPOSURE if isinstance(error, DatasetError) else str(error)
    return json_response(ShownExperiment(**_describe(stored), report=report, reason=reason))


@router.get("/v1/experiments/{name}/assignment", responses=success_response(Assignment))
def assignment(name: str, unit: Annotated[Unit, Query()], caller: CurrentCaller) -> Response:
    """Returns the variant that a conversation gets. It is always the same one."""
    experiment = find_experiment(rag_home() / "experiments", caller.tenant, name).experiment
    bucket = experiment.bucket(caller.tenant, unit.unit)
    variant = experiment.variant(bucket)
    return json_response(Assignment(experiment=name, unit=unit.unit, variant=variant, bucket=bucket))


def _describe(experiment: StoredExperiment) -> dict[str, Any]:
    share = experiment.description.share
    return {
        "name": experiment.name,
        "variants": {"control": round(1 - share, 10), "treatment": share},
        "effect": experiment.description.effect,
    }
