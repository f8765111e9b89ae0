"""The differences between a foreign configuration and its translation: one sentence each."""

from collections.abc import Iterator

from rag_core.config_import.shapes import (
    ForeignConfig,
    FusionName,
    IngestionPipeline,
    Profile,
    ProfileQuery,
    QueryPipeline,
    Retriever,
    Retry,
    Timeouts,
)
from rag_core.config_import.target import Target
from rag_core.config_import.translation import (
    SPLADE,
    budget_timeouts,
    choose_budget,
    choose_reranker,
    fit_tokens,
    is_budget,
)
from rag_core.ingestion.stages import FIRST_WAIT, MAX_WAIT, READ_ATTEMPTS
from rag_core.storage.maintenance import INDEXED_VECTORS


def list_notices(config: ForeignConfig, target: Target) -> list[str]:
    """One sentence for each value that the settings of `translate` do not hold, with its key and what applies."""
    return [
        *(_ingestion_notices(config.ingestion_pipeline) if config.ingestion_pipeline else ()),
        *(_query_notices(config.query_pipeline) if config.query_pipeline else ()),
        *(notice for name, part in config.profiles.items() for notice in _profile_notices(name, part, target)),
        *(retriever_notices(config.retriever, target) if config.retriever else ()),
    ]


def retriever_notices(retriever: Retriever, target: Target) -> Iterator[str]:
    """Yields the notices about a retriever."""
    params = retriever.dense_params
    if retriever.type != "sparse":
        yield (
            f"retriever.dense_method: faiss ({params.index_type}) is not used; the store scans all vectors exactly, "
            f"and has an HNSW index from {INDEXED_VECTORS:,} vectors on"
        )
        if params.dimension not in (None, target.dimension):
            yield (
                f"retriever.dense_params.dimension: {params.dimension} does not apply; the vectors of "
                f"{target.model} have {target.dimension} dimensions"
            )
    yield from _leg_notices("retriever.sparse_method", retriever.query, target)
    yield from _fusion_notices("retriever.fusion_method", retriever.fusion_method)


def _ingestion_notices(pipeline: IngestionPipeline) -> Iterator[str]:
    if pipeline.kafka:
        yield (
            "ingestion_pipeline.kafka: no topics are used; the stages run in one process or on Ray Data, and report as "
            "events of the job (`rag jobs watch`)"
        )
    if pipeline.retry and not _is_own_retry(pipeline.retry):
        yield (
            f"ingestion_pipeline.retry: a document is read at most {READ_ATTEMPTS} times; the first wait takes "
            f"{FIRST_WAIT:g} s, each further one twice as long, up to {MAX_WAIT:g} s"
        )


def _is_own_retry(retry: Retry) -> bool:
    """True if the retries are those of this program."""
    requested = (retry.attempts, retry.backoff_multiplier, retry.initial_delay_ms)
    return requested == (READ_ATTEMPTS, 2.0, 1000 * FIRST_WAIT)


def _query_notices(pipeline: QueryPipeline) -> Iterator[str]:
    if pipeline.timeouts and not is_budget(pipeline.timeouts):
        yield _timeouts_notice(pipeline.timeouts)
    if not pipeline.graceful_degradation:
        yield (
            "query_pipeline.graceful_degradation: false does not apply; a part that fails is left out and reported in "
            "`degraded`"
        )


def _timeouts_notice(timeouts: Timeouts) -> str:
    name = choose_budget(timeouts)
    limits = "there are no other limits"
    if name != "none":
        numbers = ", ".join(f"{limit:g}" for limit in budget_timeouts(name))
        limits = f"all other limits are those of the budget {name} ({numbers} ms)"
    return (
        "query_pipeline.timeouts: retrieval_ms and reranking_ms limit the strategies and rerankers of this file; "
        f"{limits}"
    )


def _profile_notices(name: str, profile: Profile, target: Target) -> Iterator[str]:
    if profile.ingestion:
        chunking = profile.ingestion.chunking
        if (tokens := fit_tokens(chunking, target)) < chunking.target_tokens:
            yield (
                f"profiles.{name}.ingestion.chunking.target_tokens: {chunking.target_tokens} is cut to {tokens}, "
                f"which fit the window of {target.model} with a prefix"
            )
    if profile.query:
        query = f"profiles.{name}.query"
        yield from _leg_notices(f"{query}.strategies", profile.query, target)
        yield from _fusion_notices(f"{query}.fusion", profile.query.fusion)
        if profile.query.reranking and not choose_reranker(profile.query, target):
            yield (
                f"{query}.reranking: {profile.query.reranking} is skipped, because profile {target.profile} has no "
                "model for it; choose one that does with --profile"
            )


def _leg_notices(key: str, query: ProfileQuery, target: Target) -> Iterator[str]:
    if "splade" in query.strategies and not target.has_splade:
        yield f"{key}: splade uses the model {SPLADE['model']}, which the extra [splade] installs"


def _fusion_notices(key: str, fusion: FusionName) -> Iterator[str]:
    if fusion == "ltr":
        yield f"{key}: ltr needs coefficients; rrf applies until `rag train-fusion` has learned them"
