"""Prints what every walk answers about retrievers of type `backwards`, which `test_new_retriever.py` adds to a copy."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from fakes.deployments import ScriptedHandle

from jobs.train_fusion import find_hybrid
from rag_core.config import RetrievalSettings, Settings, find_reranked_retriever
from rag_core.errors import ConfigError
from rag_core.protocols import Retriever
from rag_core.settings import load_settings
from rag_core.settings_schema import file_schema
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.wiring.budget import stage_limits
from rag_core.wiring.models import RemoteModels, list_rerankers
from rag_core.wiring.retrieval import build_retriever
from serve.models.model_connections import VLLM, connect_models
from serve.shape.reload import reload_settings
from serve.variants import SearchOptions, apply_search_options, ranking_depth

Tree = dict[str, Any]


def backwards(retriever: Tree, **settings: Any) -> Tree:
    return {"type": "backwards", "retriever": retriever, **settings}


def reranked(retriever: Tree, reranker: Tree) -> Tree:
    return {"type": "reranked", "retriever": retriever, "reranker": reranker}


DENSE, BM25 = {"type": "dense"}, {"type": "bm25"}
GRADED = backwards(reranked(BM25, {"type": "llm", "model": "m"}))
HYBRID = {"type": "hybrid", "retrievers": {"bm25": BM25, "graded": GRADED}, "fusion": {"type": "rrf"}}
TREE = backwards(reranked(backwards(HYBRID), {"type": "lexical"}), depth=30)
REQUEST = SearchOptions(strategies=("bm25",), candidates=7, rerank=False)
RELOADABLE = ("depth=9", "retriever.depth=9", "retriever.retriever.depth=9", "retriever.retriever.retriever.depth=9")
FIXED = (
    "model=other",
    "retriever.reranker.language=de",
    "retriever.retriever.retriever.retrievers.graded.model=other",
)


def load(tree: Tree) -> Settings:
    return load_settings(overrides=[f"retrieval={json.dumps(tree)}"], environment={})


def complaint(function: Callable[..., object], *arguments: object) -> str:
    try:
        function(*arguments)
    except ConfigError as error:
        return str(error)
    return ""


def reload_complaint(settings: Settings, changes: tuple[str, ...]) -> str:
    return complaint(reload_settings, settings, [f"retrieval.{change}" for change in changes])


def is_embedder_required(tree: Tree) -> bool:
    handle: Any = ScriptedHandle([[1.0]])
    embedder = connect_models(load(tree), {"embedder": handle}, VLLM).dependencies["embedder"]
    return asyncio.run(embedder.status()).required


def list_classes(settings: Settings) -> list[str]:
    retriever: Retriever | None = build_retriever(settings, CorpusReader(Postgres("host=/nowhere")), RemoteModels())
    classes = []
    while retriever is not None:
        classes.append(type(retriever).__name__)
        retriever = getattr(retriever, "retriever", None)
    return classes


def every_answer(settings: Settings, retrieval: RetrievalSettings) -> dict[str, Any]:
    reranked = find_reranked_retriever(retrieval)
    return {
        "built": list_classes(settings),
        "has schema": "BackwardsRetriever" in file_schema()["$defs"],
        "versions": [load({**TREE, "depth": depth}).pipeline_version for depth in (30, 40)],
        "missing section": complaint(load, backwards({"type": "splade"})),
        "limits": sorted(stage_limits("standard", retrieval)),
        "reranker": reranked.reranker.type if reranked else "",
        "rerankers": [reranker.type for reranker in list_rerankers(retrieval)],
        "hybrid": list(find_hybrid(retrieval).retrievers),
        "no hybrid": complaint(find_hybrid, load(backwards(DENSE)).retrieval),
        "depth": ranking_depth(retrieval),
        "varied": apply_search_options(retrieval, REQUEST).model_dump(),
        "embedder is required": [is_embedder_required(tree) for tree in (backwards(DENSE), TREE)],
        "reloadable": reload_complaint(settings, RELOADABLE),
        "fixed": reload_complaint(settings, FIXED),
    }


loaded = load(TREE)
print(json.dumps(every_answer(loaded, loaded.retrieval)))
