"""A tiny SPLADE model, from the files of a folder to the hits of a question."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models
from commands import rag_in_process
from trees import HASHING, write

from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.storage.postgres import Postgres

pytestmark = pytest.mark.postgres

TREE = {"keys.md": "How do I rotate the keys weekly.", "doors.md": "The doors are of oak.", "night.md": "Two by night."}
LEGS = {"RAG_RETRIEVAL__RETRIEVERS__SPLADE__TYPE": "splade", "RAG_RETRIEVAL__FUSION__WEIGHTS": "null"}
PATIENT = {"RAG_RETRIEVAL__TIMEOUT_MS": "60000"}

Rag = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.two_sided_splade_files(tmp_path_factory.mktemp("splade"))


@pytest.fixture
def plain(store: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rag:
    """A function that runs the command without SPLADE, and returns what it prints."""
    named = {f"RAG_{key.upper().replace('.', '__')}": value for key, _, value in map(split_setting, HASHING)}
    for name, value in {**named, **PATIENT, "RAG_STORE__URL": store.dsn, "RAG_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)

    command = rag_in_process(capfd)

    def run(*arguments: object, code: int = 0) -> str:
        ran = command(*arguments)
        assert ran.code == code, ran.err
        return ran.err if code else ran.out

    return run


def split_setting(setting: str) -> tuple[str, str, str]:
    return setting.partition("=")


@pytest.fixture
def rag(plain: Rag, model: Path, monkeypatch: pytest.MonkeyPatch) -> Rag:
    named = {"RAG_SPLADE__TYPE": "sentence_transformers", "RAG_SPLADE__MODEL": str(model)}
    for name, value in {**LEGS, **named}.items():
        monkeypatch.setenv(name, value)
    return plain


@pytest.mark.slow
def test_a_folder_is_ingested_and_searched_with_all_three_legs(rag: Rag, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    assert json.loads(rag("ingest", folder, "--runner", "inline", "--json"))["documents"]["added"] == 3
    response = json.loads(rag("search", "rotate the keys", "-k", "3", "--explain", "--json"))
    assert all({"dense", "bm25", "splade"} <= set(hit["explain"]) for hit in response["results"])
    assert len({hit["explain"]["splade"]["score"] for hit in response["results"]}) == 3
    assert {stage["stage"]: stage["error"] for stage in response["stages"]}["splade"] == ""
    assert "splade" in rag("why", "rotate the keys", f"file://{folder}/keys.md")


def test_our_own_forward_pass_weighs_documents_and_questions(
    plain: Rag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_models.splade_files(tmp_path / "model")
    for name, value in {**LEGS, "RAG_SPLADE__TYPE": "bert", "RAG_SPLADE__MODEL": str(model)}.items():
        monkeypatch.setenv(name, value)
    plain("ingest", write(tmp_path / "docs", TREE), "--runner", "inline")
    response = json.loads(plain("search", "rotate the keys", "-k", "3", "--explain", "--json"))
    assert len({hit["explain"]["splade"]["score"] for hit in response["results"]}) == 3


def test_a_collection_without_weights_is_refused_by_the_leg_with_what_to_do(
    plain: Rag, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = write(tmp_path / "docs", TREE)
    plain("ingest", folder, "--runner", "inline")
    rag = request.getfixturevalue("rag")
    refused = " ".join(rag("search", "rotate the keys", code=2).split())
    assert "holds no term weights of the profile's SPLADE model: ingest it again with this profile" in refused
    report = json.loads(rag("ingest", folder, "--runner", "inline", "--json"))
    assert (report["documents"]["changed"], report["chunks"]["embedded"]) == (3, 0)
    assert len(json.loads(rag("search", "rotate the keys", "--json"))["results"]) == 3


@pytest.mark.slow
def test_weights_on_a_missing_gpu_are_refused_before_any_work(
    rag: Rag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_SPLADE__DEVICE", "cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "splade.device is cuda" in rag("ingest", write(tmp_path / "docs", TREE), "--runner", "inline", code=3)


def test_an_evaluation_measures_the_leg_by_its_name(rag: Rag, tmp_path: Path) -> None:
    corpus = [CorpusDocument(id=name, title=name, text=text) for name, text in TREE.items()]
    write_dataset(tmp_path / "keys", corpus, [Question(id="1", text="rotate the keys", grades={"keys.md": 1})])
    output = rag("evaluate", tmp_path / "keys", "--runner", "inline")
    assert {"dense", "bm25", "splade", "fuse"} <= set(output.split())


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_ray_makes_the_same_weights(rag: Rag, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", TREE)
    for runner in ("inline", "ray"):
        rag("ingest", folder, "--runner", runner, "--collection", runner)
    alone = ("--set", "retrieval={type: splade}", "--json")
    hit_lists = [
        json.loads(rag("search", "rotate the keys", "--collection", runner, *alone))["results"]
        for runner in ("inline", "ray")
    ]
    first, second = ([(hit["text"], hit["score"]) for hit in hits] for hits in hit_lists)
    assert [text for text, _ in first] == [text for text, _ in second] != []
    assert [score for _, score in first] == pytest.approx([score for _, score in second], rel=1e-3)
