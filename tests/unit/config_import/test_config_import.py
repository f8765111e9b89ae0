"""Foreign configurations become settings; what these cannot hold is one notice each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_core.config import Settings
from rag_core.config_import.notices import list_notices
from rag_core.config_import.retriever_files import read_retriever
from rag_core.config_import.shapes import read_foreign_config
from rag_core.config_import.target import describe_target
from rag_core.config_import.translation import translate
from rag_core.errors import ConfigError
from rag_core.settings import load_settings, read_profiles

PIPELINE = """
ingestion_pipeline:
  kafka:
    topics:
      requests: ingest.chunking.v1
      chunks: ingest.chunks.v1
      embeddings: ingest.embeddings.v1
      indexed: ingest.indexed.v1
  retry: {max_attempts: 3, backoff_multiplier: 2, initial_delay_ms: 1000}
query_pipeline:
  timeouts: {retrieval_ms: 50, fusion_ms: 5, reranking_ms: 50, total_ms: 120}
  graceful_degradation: true
profiles:
  default:
    ingestion: {chunking: {primary: semantic_splitter, target_tokens: 600}}
    query: {strategies: [dense, bm25], fusion: rrf, reranking: cross_encoder}
"""
RETRIEVER = """
retriever:
  type: hybrid
  sparse_method: bm25
  dense_method: faiss
  fusion_method: rrf
  sparse_params: {k1: 1.5, b: 0.75}
  dense_params: {dimension: 384, index_type: flat}
  fusion_params: {k: 60}
"""
HASHING = ("embedding.type=hashing", "embedding.window=256", "embedding.dimension=384")
CROSS_ENCODER = (
    "retrieval={type: reranked, retriever: {type: dense}, reranker: {type: cross_encoder, model: /models/mine}}",
)
FAISS = "retriever.dense_method: faiss (flat) is not used"


def settings_of(*overrides: str, file: Path | None = None, profile: str = "") -> Settings:
    return load_settings(file, profile, [*HASHING, *overrides], {})


def convert(text: str, *overrides: str) -> tuple[dict[str, Any], list[str]]:
    """The settings and the notices of a file that is imported over the default profile with these overrides."""
    config, target = read_foreign_config(yaml.safe_load(text)), describe_target(settings_of(*overrides))
    return translate(config, target), list_notices(config, target)


def load(folder: Path, tree: Mapping[str, Any], profile: str = "") -> Settings:
    """The settings of a profile of the file that an import has written."""
    file = folder / "imported.yaml"
    file.write_text(yaml.safe_dump(dict(tree), sort_keys=False))
    return settings_of(file=file, profile=profile)


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read_foreign_config(yaml.safe_load(text))
    return str(raised.value)


def test_a_pipeline_becomes_settings_and_three_notices(tmp_path: Path) -> None:
    tree, notices = convert(PIPELINE)
    settings = load(tmp_path, tree)
    assert settings.answering.budget == "realtime"
    assert settings.chunking.model_dump(include={"type", "tokens"}) == {"type": "semantic", "tokens": 208}
    assert settings.retrieval.model_dump(exclude_unset=True) == {
        "type": "hybrid",
        "retrievers": {"dense": {"type": "dense"}, "bm25": {"type": "bm25"}},
        "fusion": {"type": "rrf", "k": 60},
    }
    assert [notice.partition(":")[0] for notice in notices] == [
        "ingestion_pipeline.kafka",
        "profiles.default.ingestion.chunking.target_tokens",
        "profiles.default.query.reranking",
    ]
    assert "600 is cut to 208" in notices[1]
    assert "cross_encoder is skipped, because profile default has no model for it" in notices[2]


def test_a_model_that_reads_more_and_a_reranker_leave_nothing_to_report(tmp_path: Path) -> None:
    tree, notices = convert(PIPELINE, "embedding.window=1024", *CROSS_ENCODER)
    assert [notice.partition(":")[0] for notice in notices] == ["ingestion_pipeline.kafka"]
    assert tree["profiles"]["default"]["chunking"]["tokens"] == 600
    retrieval = load(tmp_path, tree).retrieval
    assert retrieval.type == "reranked"
    assert retrieval.model_dump()["reranker"]["model"] == "/models/mine"


def test_a_retriever_becomes_a_search_and_one_notice(tmp_path: Path) -> None:
    tree, notices = convert(RETRIEVER)
    assert load(tmp_path, tree).retrieval.model_dump(exclude_unset=True) == {
        "type": "hybrid",
        "retrievers": {"dense": {"type": "dense"}, "bm25": {"type": "bm25", "k1": 1.5, "b": 0.75}},
        "fusion": {"type": "rrf", "k": 60},
    }
    assert [notice[: len(FAISS)] for notice in notices] == [FAISS]
    _, notices = convert(RETRIEVER.replace("384", "1024"))
    assert len(notices) == 2
    assert notices[1].startswith("retriever.dense_params.dimension: 1024 does not apply; the vectors of hashing")


@pytest.mark.parametrize(
    ("timeouts", "budget", "limits", "notice"),
    [
        ("{}", "realtime", (5000, 30_000), ""),
        ("{retrieval_ms: 500, fusion_ms: 20, reranking_ms: 200, total_ms: 1000}", "standard", (5000, 30_000), ""),
        (
            "{retrieval_ms: 40}",
            "realtime",
            (40, 50),
            "other limits are those of the budget realtime (50, 5, 50, 120 ms)",
        ),
        (
            "{retrieval_ms: 90, total_ms: 300}",
            "standard",
            (90, 50),
            "other limits are those of the budget standard (500, 20, 200, 1000 ms)",
        ),
        ("{total_ms: 3000}", "none", (50, 50), "there are no other limits"),
    ],
)
def test_timeouts_become_a_budget_or_the_nearest_with_limits_of_their_own(
    tmp_path: Path, timeouts: str, budget: str, limits: tuple[float, float], notice: str
) -> None:
    text = f"query_pipeline: {{timeouts: {timeouts}}}\nprofiles: {{default: {{query: {{reranking: lexical}}}}}}"
    tree, notices = convert(text)
    settings = load(tmp_path, tree)
    reranked: Any = settings.retrieval
    assert (settings.answering.budget, reranked.retriever.timeout_ms, reranked.timeout_ms) == (budget, *limits)
    assert [line[-len(notice) :] for line in notices] == ([notice] if notice else [])


@pytest.mark.parametrize(
    ("retry", "is_held"),
    [
        ("{}", True),
        ("{max_retries: 2}", True),  # and the first attempt
        ("{max_attempts: 5}", False),
        ("{max_retries: 3}", False),
        ("{initial_delay_ms: 50}", False),
    ],
)
def test_retries_that_are_not_ours_are_one_notice(retry: str, is_held: bool) -> None:
    _, notices = convert(f"ingestion_pipeline: {{retry: {retry}}}")
    expected = "ingestion_pipeline.retry: a document is read at most 3 times; the first wait takes 1 s, each further"
    assert [notice[: len(expected)] for notice in notices] == ([] if is_held else [expected])


@pytest.mark.parametrize(
    ("params", "fusion"),
    [
        ("fusion: weighted_sum", {"type": "weighted", "weights": {"dense": 0.5, "bm25": 0.5}}),
        (
            "fusion: weighted_sum, fusion_params: {alpha: 0.25}",
            {"type": "weighted", "weights": {"dense": 0.75, "bm25": 0.25}},
        ),
        (
            "fusion: distribution, fusion_params: {weights: {dense: 2, bm25: 1}}",
            {"type": "distribution", "weights": {"dense": 2, "bm25": 1}},
        ),
        ("fusion: rrf, fusion_params: {k: 10}", {"type": "rrf", "k": 10}),
        ("fusion: ltr", {"type": "rrf", "k": 60}),
    ],
)
def test_fusions_keep_their_weights_of_which_alpha_is_that_of_sparse_legs(
    tmp_path: Path, params: str, fusion: Mapping[str, Any]
) -> None:
    tree, notices = convert(f"profiles: {{default: {{query: {{{params}}}}}}}")
    retrieval: Any = load(tmp_path, tree).retrieval
    assert retrieval.fusion.model_dump(exclude_unset=True) == fusion
    assert [notice.partition(" ")[0] for notice in notices] == (
        ["profiles.default.query.fusion:"] if "ltr" in params else []
    )


def test_each_profile_has_its_own_legs_although_they_are_merged_into_others(tmp_path: Path) -> None:
    text = """
profiles:
  default: {query: {strategies: [dense, bm25], fusion: distribution, reranking: lexical}}
  pmc: {query: {strategies: [dense, splade], fusion: distribution, reranking: lexical}}
  plain: {query: {strategies: [dense]}, ingestion: {chunking: {primary: section_aware, target_tokens: 100}}}
"""
    tree, notices = convert(text)
    default, pmc, plain = (load(tmp_path, tree, name) for name in ("default", "pmc", "plain"))
    legs = [list(settings.retrieval.model_dump()["retriever"]["retrievers"]) for settings in (default, pmc)]
    assert legs == [["dense", "bm25"], ["dense", "splade"]]
    assert pmc.splade is not None
    assert list(plain.retrieval.model_dump()["retrievers"]) == ["dense"]
    assert plain.chunking.model_dump(include={"type", "tokens"}) == {"type": "sections", "tokens": 100}
    assert [notice.partition(":")[0] for notice in notices] == ["profiles.pmc.query.strategies"]
    assert list(read_profiles(tmp_path / "imported.yaml")) == ["default", "pmc", "plain"]


def test_another_profile_to_import_over_is_extended(tmp_path: Path) -> None:
    config = read_foreign_config(yaml.safe_load(RETRIEVER))
    tree = translate(config, describe_target(settings_of(profile="splade")))
    assert tree["extends"] == "splade"
    assert list(load(tmp_path, tree).retrieval.model_dump()["retrievers"]) == ["dense", "bm25"]


def test_a_degradation_that_is_not_wanted_is_a_notice() -> None:
    _, [notice] = convert("query_pipeline: {graceful_degradation: false}")
    assert notice.startswith("query_pipeline.graceful_degradation: false does not apply")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "query_pipeline: {timeouts: {retreival_ms: 5}}",
            "query_pipeline.timeouts.retreival_ms: unknown key; did you mean retrieval_ms?",
        ),
        ("retriver: {}", "retriver: unknown key; did you mean retriever?"),
        ("retriever: {fusion_method: rff}", "'rff'; did you mean rrf?"),
        ("retriever: {dense_params: {dimension: 0}}", "retriever.dense_params.dimension: "),
        ("retriever: {fusion_params: {alpha: 0.5, weights: {dense: 1}}}", "set alpha or weights, not both"),
        (
            "retriever: {fusion_params: {weights: {splade: 1}}}",
            "weights must name strategies (dense, bm25), got splade",
        ),
        ("profiles: {a: {query: {strategies: []}}}", "profiles.a.query.strategies: "),
        ("{}", "must have one of ingestion_pipeline, query_pipeline, profiles, retriever"),
    ],
)
def test_a_value_that_breaks_a_rule_is_an_error_that_names_the_key(text: str, message: str) -> None:
    assert message in complaint(text)


def test_a_file_with_a_retriever_can_have_our_own_shape() -> None:
    target = describe_target(settings_of())
    configuration = {"retrieval": {"type": "bm25"}}
    assert read_retriever(configuration, target) == (configuration, [])
    sections, notices = read_retriever(yaml.safe_load(RETRIEVER), target)
    assert (sections["retrieval"]["fusion"], len(notices)) == ({"type": "rrf", "k": 60}, 1)
    with pytest.raises(ConfigError, match="can have retrieval, splade, graph, got chunking"):
        read_retriever({**configuration, "chunking": {}}, target)
    with pytest.raises(ConfigError, match="must have retrieval or retriever, got profiles"):
        read_retriever({"profiles": {}}, target)
