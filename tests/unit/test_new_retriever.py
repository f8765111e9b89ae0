"""A new outer retriever takes its file, its settings and its case in the builder; every walk then sees through it.

The tests edit a copy of the code as `CONTRIBUTING.md` says, and run `walks.py` on it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

RUNTIME = """
from dataclasses import dataclass
from typing import ClassVar

from rag_core.protocols import Retriever
from rag_core.stage import stage
from rag_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Backwards:
    stage_name: ClassVar[str] = "backwards"

    retriever: Retriever
    depth: int

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await self.retriever.retrieve(query, max(k, self.depth))
        async with stage(self.stage_name) as running:
            running.ranking = tuple(hit.chunk.id for hit in reversed(hits))
        return hits[::-1][:k]
"""

SETTINGS = '''class BackwardsRetriever(OuterRetriever):
    """The hits of a retriever, the worst first."""

    restart_settings = frozenset({"model"})

    type: Literal["backwards"]
    model: str = Field("m", description="Model that it would load.")
    depth: int = Field(100, ge=1, description="Number of hits that it reads.")


LegSettings = '''

EDITS = [
    ("rag_core/config.py", "LegSettings = ", SETTINGS),
    ("rag_core/config.py", "\nOuterSettings = ", "\nOuterSettings = BackwardsRetriever | "),
    (
        "rag_core/wiring/retrieval.py",
        "from rag_core.config import (\n",
        "from rag_core.retrieval.backwards import Backwards\nfrom rag_core.config import (\n    BackwardsRetriever,\n",
    ),
    (
        "rag_core/wiring/retrieval.py",
        "            case RerankedRetriever():\n",
        "            case BackwardsRetriever():\n"
        "                return Backwards(retriever=inner, depth=section.depth)\n"
        "            case RerankedRetriever():\n",
    ),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every walk of the edited copy answers."""
    copy = tmp_path_factory.mktemp("copy")
    unfinished = shutil.ignore_patterns("*.pyc.*")  # bytecode that another worker is writing; the rest saves 10 seconds
    for package in ("rag_core", "serve", "jobs"):
        shutil.copytree(ROOT / package, copy / package, ignore=unfinished)
    (copy / "rag_core/retrieval/backwards.py").write_text(RUNTIME)
    for path, before, after in EDITS:
        text = (copy / path).read_text()
        assert text.count(before) == 1, before
        (copy / path).write_text(text.replace(before, after))
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    walks = ROOT / "tests/walks.py"
    output = subprocess.run([sys.executable, walks], cwd=copy, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(output.stdout)  # type: ignore[no-any-return]


def test_it_is_built_where_the_settings_have_it(answers: dict[str, Any]) -> None:
    assert answers["built"] == ["Backwards", "Reranked", "Backwards", "Hybrid"]


def test_the_schema_and_the_version_of_the_pipeline_know_it(answers: dict[str, Any]) -> None:
    assert answers["has schema"]
    assert len(set(answers["versions"])) == 2


def test_a_leg_within_it_requires_its_section(answers: dict[str, Any]) -> None:
    assert answers["missing section"].startswith("splade: a splade retriever requires this section")


def test_the_budget_has_the_stages_within_it(answers: dict[str, Any]) -> None:
    legs = ["bm25", "bm25 scores", "graded", "graded scores"]
    assert answers["limits"] == sorted([*legs, "encode", "rerank", "retrieve"])


def test_rerankers_and_the_hybrid_within_it_are_found(answers: dict[str, Any]) -> None:
    assert answers["reranker"] == "lexical"
    assert answers["rerankers"] == ["lexical", "llm"]
    assert answers["hybrid"] == ["bm25", "graded"]
    assert answers["no hybrid"].endswith("of type hybrid, got dense")


def test_the_options_of_a_request_reach_through_it(answers: dict[str, Any]) -> None:
    assert answers["depth"] == 30
    outer = answers["varied"]
    inner = outer["retriever"]
    hybrid = inner["retriever"]
    assert [(tree["type"], tree["depth"]) for tree in (outer, inner, hybrid)] == [
        ("backwards", 7),
        ("backwards", 7),
        ("hybrid", 7),
    ]
    assert list(hybrid["retrievers"]) == ["bm25"]


def test_the_embedder_is_required_if_it_holds_only_a_dense_leg(answers: dict[str, Any]) -> None:
    assert answers["embedder is required"] == [True, False]


def test_a_gateway_reloads_its_depth_but_not_its_model(answers: dict[str, Any]) -> None:
    assert answers["reloadable"] == ""
    graded = "retrieval.retriever.retriever.retriever.retrievers.graded.model"
    keys = f"retrieval.model, retrieval.retriever.reranker.language, {graded}"
    assert answers["fixed"].startswith(f"cannot change while the gateway serves: {keys};")
