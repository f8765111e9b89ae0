"""The aggregation of results into one text for a prompt."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from rag_core.answering.generation.packing import Packing, pack
from rag_core.config import PackingSettings
from rag_core.text.token_counts import EstimatedTokens
from rag_core.types import Hit
from rag_core.wire.result_dicts import hit_from_result

_DEFAULTS = PackingSettings()
_SEPARATOR_TOKENS = 1
_UNDATED = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class AggregationStrategy:
    """The notes before each result: none (`concatenate`), its relevance (`weighted`), its age (`recency`), `template`.

    `recency` puts the newest first, by the `timestamp` in the metadata. A result with a `query` in its metadata is an
    earlier answer, with the note `[2 turns ago] Query: ... Answer:`.
    """

    strategy: Literal["concatenate", "template", "weighted", "recency"] = "concatenate"
    template: str = _DEFAULTS.template

    def aggregate(self, results: Sequence[Mapping[str, Any]], max_tokens: int = _DEFAULTS.tokens) -> str:
        """The texts of the results, best first, within `max_tokens`, by an estimate that is rather too high.

        A result that does not fit is left out, and so is one that repeats a better one. If the best one is too long,
        the text is its beginning.
        """
        packing = Packing(
            strategy=self.strategy,
            order="relevance",
            passages=max(1, len(results)),
            tokens=max_tokens,
            near_duplicate=_DEFAULTS.near_duplicate,
            template=self.template,
            now=datetime.now(UTC),
        )
        passages = pack(list(_read_hits(results)), packing, _count_tokens)
        return "\n\n".join(f"{passage.note} {passage.text}" if passage.note else passage.text for passage in passages)


def _read_hits(results: Sequence[Mapping[str, Any]]) -> Iterator[Hit]:
    """Yields the hits without their headings, which are not part of the text.

    An earlier answer without a number of turns is numbered by its time, from 1 for the newest.
    """
    hits = [hit_from_result(result) for result in results]
    times = sorted((hit.origin.updated_at or _UNDATED for hit in hits), reverse=True)
    for hit in hits:
        metadata = hit.origin.metadata
        if "query" in metadata:
            turn = {"turns_ago": times.index(hit.origin.updated_at or _UNDATED) + 1, "question": metadata["query"]}
            hit = replace(hit, origin=replace(hit.origin, metadata={**turn, **metadata}))
        yield replace(hit, chunk=replace(hit.chunk, prefix=""))


def _count_tokens(texts: Sequence[str]) -> list[int]:
    return [length + _SEPARATOR_TOKENS for length in EstimatedTokens().lengths(texts)]
