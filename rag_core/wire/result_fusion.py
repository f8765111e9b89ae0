"""Fusion of retrieval results that are dicts, whose ids are any texts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from rag_core.protocols import Ranking
from rag_core.retrieval.fusion import Candidates, merge_rankings

Results: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""The results of each search, best first, by the search's name."""


def fuse_results(results: Results, fusion: Callable[[Candidates], Ranking]) -> list[dict[str, Any]]:
    """The merged results with fused scores, best first; ties by id. A result without a score counts as 0."""
    merged = merge_results(results)
    uuids = {id: UUID(int=number) for number, id in enumerate(sorted(merged))}
    ids = {uuid: id for id, uuid in uuids.items()}
    rankings = {
        name: [(uuids[str(result["id"])], float(result.get("score", 0.0))) for result in ranked]
        for name, ranked in results.items()
    }
    return [{**merged[ids[uuid]], "score": score} for uuid, score in fusion(merge_rankings(rankings))]


def merge_results(results: Results) -> dict[str, dict[str, Any]]:
    """Each result once, by id, as the first search found it, with the names of all that found it as `sources`."""
    merged: dict[str, dict[str, Any]] = {}
    for name, ranked in results.items():
        for result in ranked:
            first = {key: value for key, value in result.items() if key != "retriever"}
            known = merged.setdefault(str(result["id"]), {**first, "sources": []})
            known["sources"] = list(dict.fromkeys((*known["sources"], name)))
    return merged
