"""One experiment, as its file in the folder of results holds it."""

import json
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, field_validator


class Result(BaseModel):
    """The figures of an experiment: measures by name, and times in milliseconds by name, such as `p95`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metrics: Annotated[dict[str, FiniteFloat], Field(min_length=1)]
    latency_stats: dict[str, FiniteFloat]
    logged_at: datetime


class Experiment(BaseModel):
    """A retriever on a dataset. `result` is None until it was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    experiment_id: str
    experiment_name: str
    description: str
    retriever_type: str
    retriever_params: dict[str, JsonValue]
    dataset_name: str
    created_at: datetime
    result: Result | None = None

    @field_validator("retriever_params")
    @classmethod
    def _check_json(cls, params: dict[str, JsonValue]) -> dict[str, JsonValue]:
        json.dumps(params, allow_nan=False)  # raises ValueError for NaN, which would be stored as null
        return params
