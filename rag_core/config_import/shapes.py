"""The foreign shapes of a configuration: that of a pipeline and that of a retriever, with their own defaults."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from rag_core.errors import ConfigError, suggest_name, validation_lines

Leg: TypeAlias = Literal["dense", "bm25", "splade"]
FusionName: TypeAlias = Literal["rrf", "weighted", "weighted_sum", "distribution", "ltr"]
MIN_TARGET_TOKENS = 64


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Topics(Shape):
    requests: str = "ingest.chunking.v1"
    chunks: str = "ingest.chunks.v1"
    embeddings: str = "ingest.embeddings.v1"
    indexed: str = "ingest.indexed.v1"


class Kafka(Shape):
    topics: Topics = Topics()


class Retry(Shape):
    """`max_attempts` counts the first attempt; `max_retries`, which can take its place, does not."""

    max_attempts: int = Field(3, ge=1)
    max_retries: int | None = Field(None, ge=0)
    backoff_multiplier: float = Field(2.0, ge=1)
    initial_delay_ms: float = Field(1000.0, ge=0)

    @property
    def attempts(self) -> int:
        return self.max_attempts if self.max_retries is None else self.max_retries + 1


class IngestionPipeline(Shape):
    kafka: Kafka | None = None
    retry: Retry | None = None


class Timeouts(Shape):
    retrieval_ms: float = Field(50.0, gt=0)
    fusion_ms: float = Field(5.0, gt=0)
    reranking_ms: float = Field(50.0, gt=0)
    total_ms: float = Field(120.0, gt=0)


class QueryPipeline(Shape):
    timeouts: Timeouts | None = None
    graceful_degradation: bool = True


class Chunking(Shape):
    primary: Literal["semantic_splitter", "section_aware", "clinical_role"] = "semantic_splitter"
    target_tokens: int = Field(600, ge=MIN_TARGET_TOKENS)


class ProfileIngestion(Shape):
    chunking: Chunking = Chunking()


class FusionParams(Shape):
    """`alpha` is the weight of the sparse strategies together; `weights` are by strategy."""

    k: int = Field(60, ge=0)
    alpha: float | None = Field(None, ge=0, le=1)
    weights: dict[Leg, FiniteFloat] = {}

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.alpha is not None and self.weights:
            raise ValueError("set alpha or weights, not both")
        return self

    def check_names(self, strategies: Sequence[str]) -> None:
        """Raises ValueError if a weight is not of one of these strategies."""
        if unknown := sorted(self.weights.keys() - set(strategies)):
            raise ValueError(f"weights must name strategies ({', '.join(strategies)}), got {', '.join(unknown)}")


class ProfileQuery(Shape):
    strategies: tuple[Leg, ...] = Field(("dense", "bm25"), min_length=1)
    fusion: FusionName = "rrf"
    fusion_params: FusionParams = FusionParams()
    reranking: Literal["cross_encoder", "lexical", "late_interaction"] | None = None

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        self.fusion_params.check_names(self.strategies)
        return self


class Profile(Shape):
    ingestion: ProfileIngestion | None = None
    query: ProfileQuery | None = None


class SparseParams(Shape):
    k1: float = Field(1.5, ge=0)
    b: float = Field(0.75, ge=0, le=1)


class DenseParams(Shape):
    dimension: int | None = Field(None, ge=1)
    index_type: str = "flat"


class Retriever(Shape):
    type: Literal["hybrid", "sparse", "dense"] = "hybrid"
    sparse_method: Literal["bm25", "splade"] = "bm25"
    dense_method: Literal["faiss"] = "faiss"
    fusion_method: FusionName = "rrf"
    sparse_params: SparseParams = SparseParams()
    dense_params: DenseParams = DenseParams()
    fusion_params: FusionParams = FusionParams()

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        self.fusion_params.check_names(self.strategies)
        return self

    @property
    def strategies(self) -> tuple[Leg, ...]:
        match self.type:
            case "hybrid":
                return ("dense", self.sparse_method)
            case "sparse":
                return (self.sparse_method,)
            case "dense":
                return ("dense",)

    @property
    def query(self) -> ProfileQuery:
        """The query of a profile that has this retriever."""
        return ProfileQuery(
            strategies=self.strategies, fusion=self.fusion_method, fusion_params=self.fusion_params, reranking=None
        )


class ForeignConfig(Shape):
    """A file in one of the shapes, or in both."""

    ingestion_pipeline: IngestionPipeline | None = None
    query_pipeline: QueryPipeline | None = None
    profiles: dict[str, Profile] = {}
    retriever: Retriever | None = None

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"must have one of {', '.join(type(self).model_fields)}")
        return self


_KEYS = sorted({key for shape in Shape.__subclasses__() for key in shape.model_fields})


def read_foreign_config(tree: Mapping[str, Any]) -> ForeignConfig:
    """Raises ConfigError with a line for each value that breaks a rule, and for each unknown key."""
    try:
        return ForeignConfig.model_validate(tree)
    except ValidationError as error:
        hints = map(_suggest, error.errors())
        lines = (line + hint for line, hint in zip(validation_lines(error), hints, strict=True))
        raise ConfigError("\n".join(lines)) from None


def _suggest(error: Any) -> str:
    """The key or the value that was likely meant."""
    match error["type"]:
        case "extra_forbidden":
            key = str(error["loc"][-1])
            return suggest_name(key, [name for name in _KEYS if name != key])
        case "literal_error" if isinstance(error["input"], str):
            return suggest_name(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
        case _:
            return ""
