"""The findings of `rag doctor` about a profile's models."""

from pathlib import Path

from fakes.openai_endpoint import error_response, run_endpoint, whole_response
from tiny_models import bert_files
from trees import hashing_settings

from rag_cli.doctor_checks import Finding
from rag_cli.model_checks import check_models

WRITTEN = "generation={{type: openai, model: llama, base_url: '{}', attempts: 1}}"
RERANKED = "retrieval={{type: reranked, retriever: {{type: bm25}}, reranker: {}}}"
OWN = "{type: python, object: 'builtins:object', arguments: {a: 1}}"
MISSING = "{type: cross_encoder, model: /not/there}"


def findings_of(*settings: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in check_models(hashing_settings(*settings))}


def test_a_profile_without_other_models_has_its_embedder_looked_at() -> None:
    assert list(findings_of()) == ["gpu", "model"]
    assert list(findings_of(RERANKED.format(OWN))) == ["gpu", "model"]


def test_an_endpoint_is_asked_by_each_part_that_needs_it() -> None:
    with run_endpoint(whole_response("Yes.")) as endpoint:
        llm = f"{{type: llm, model: grader, base_url: '{endpoint.url}'}}"
        findings = findings_of(WRITTEN.format(endpoint.url), RERANKED.format(llm), f"guard.judge={llm}")
    assert [request.body["model"] for request in endpoint.requests] == ["grader", "llama", "grader"]
    assert [findings[name].state for name in ("reranker", "generator", "judge")] == ["ok"] * 3
    assert f"llama at {endpoint.url} answers in" in findings["generator"].detail


def test_an_endpoint_that_refuses_is_missing_with_its_reason() -> None:
    with run_endpoint(error_response(404, {"error": "model llama not found"})) as endpoint:
        generator = findings_of(WRITTEN.format(endpoint.url))["generator"]
    assert generator.state == "missing"
    assert generator.detail.endswith("refused with 404: model llama not found")


def test_models_of_this_process_are_loaded(tmp_path: Path) -> None:
    folder = bert_files(tmp_path, "ForSequenceClassification")
    reranker = findings_of(RERANKED.format(f"{{type: cross_encoder, model: {folder}}}"))["reranker"]
    assert (reranker.state, reranker.detail) == ("ok", f"{folder} on cpu")


def test_models_that_are_not_there_are_missing() -> None:
    findings = findings_of(RERANKED.format(MISSING), WRITTEN.format("http://127.0.0.1:1/v1"), f"guard.judge={MISSING}")
    states = {name: finding.state for name, finding in findings.items() if name not in ("gpu", "model")}
    assert states == {"reranker": "missing", "generator": "missing", "judge": "missing"}
