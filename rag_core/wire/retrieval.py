"""The shapes of a search: `/v1/retrieve` and `rag search --json`."""

from collections.abc import Sequence
from typing import Any, Literal, Self
from uuid import UUID, uuid4

from pydantic import Field

from rag_core import types
from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE
from rag_core.retrieval.explanation import STEPS_AFTER_LEGS, Ranks, explain_hit, ranks_by_stage
from rag_core.wire.highlights import find_highlights
from rag_core.wire.shape import Metadata, Milliseconds, Shape
from rag_core.wire.stages import Stage, describe_stages, sum_timings


class Profile(Shape):
    name: str
    selected_by: Literal["explicit", "detected", "default"]
    version: str | None = Field(None, description="present if the profile has a version")

    @classmethod
    def describe(cls, settings: Settings, requested: bool = False) -> Self:
        is_default = settings.profile == DEFAULT_PROFILE and not requested
        version = {"version": settings.version} if settings.version else {}
        return cls(name=settings.profile, selected_by="default" if is_default else "explicit", **version)


class Step(Shape):
    rank: int | None
    score: float


class Hit(Shape):
    rank: int
    chunk_id: UUID
    document_id: UUID
    text: str
    title: str
    url: str
    page: int | None
    section: str | None
    start: int
    end: int
    score: float
    retrievers: list[str]
    highlights: list[tuple[int, int]]
    metadata: Metadata
    explain: dict[str, Step] | None = Field(None, description="by step, if requested")

    @classmethod
    def describe(cls, rank: int, hit: types.Hit, question: str, ranks: Ranks | None = None) -> Self:
        """`ranks` adds the rank and the score at each step."""
        chunk = hit.chunk
        return cls.from_value(
            chunk,
            rank=rank,
            **describe_place(hit),
            retrievers=[name for name in hit.scores if name not in STEPS_AFTER_LEGS],
            highlights=find_highlights(question, chunk.text),
            metadata=dict(hit.origin.metadata),
            **({} if ranks is None else {"explain": explain_hit(hit, ranks)}),
        )

    def to_hit(self) -> types.Hit:
        chunk = self.to_value(types.Chunk, id=self.chunk_id, ordinal=0, metadata=chunk_metadata(self))
        return types.Hit(chunk=chunk, origin=types.Origin(uri=self.url, title=self.title), score=self.score)


def describe_place(hit: types.Hit) -> dict[str, Any]:
    """The members of a hit and of a passage that name its chunk and its document, and its score."""
    return {
        "chunk_id": hit.chunk.id,
        "document_id": hit.chunk.document_id,
        "title": hit.origin.title,
        "url": hit.origin.uri,
        "page": hit.chunk.metadata.get("page"),
        "section": hit.chunk.metadata.get("section"),
        "score": round(hit.score, 6),
    }


def chunk_metadata(shape: Shape) -> dict[str, Any]:
    """The metadata of a chunk: the page and the section of a hit or a passage, if they are known."""
    values = {name: getattr(shape, name) for name in ("page", "section")}
    return {name: value for name, value in values.items() if value is not None}


class Retrieval(Shape):
    id: str
    object: Literal["retrieval"]
    query: str
    standalone_query: str
    results: list[Hit]
    profile: Profile
    partial: bool
    degraded: list[str] = Field(description="stages that failed or timed out, and were skipped")
    degraded_reasons: dict[str, str] = Field(description="why each stage in `degraded` failed")
    timings_ms: Milliseconds
    stages: list[Stage] | None = Field(None, description="if requested")
    next_cursor: str | None
    pipeline_version: str

    @classmethod
    def describe(
        cls,
        question: str,
        hits: Sequence[types.Hit],
        stages: Sequence[types.StageReport],
        *,
        seconds: float,
        profile: Profile,
        pipeline_version: str,
        standalone: str = "",
        explain: bool = False,
        offset: int = 0,
        next_cursor: str | None = None,
    ) -> Self:
        """`explain` adds the ranks of each hit and the stages. `offset` is the number of hits before the first.

        `standalone` is the question as it was searched, if it differs.
        """
        ranks = ranks_by_stage(stages) if explain else None
        return cls(
            id=f"ret_{uuid4().hex}",
            object="retrieval",
            query=question,
            standalone_query=standalone or question,
            results=[Hit.describe(rank, hit, question, ranks) for rank, hit in enumerate(hits, start=offset + 1)],
            profile=profile,
            partial=any(report.error for report in stages),
            degraded=[report.stage for report in stages if report.error],
            degraded_reasons={report.stage: report.error for report in stages if report.error},
            timings_ms=sum_timings(stages, seconds),
            next_cursor=next_cursor,
            pipeline_version=pipeline_version,
            **({"stages": describe_stages(stages)} if explain else {}),
        )
