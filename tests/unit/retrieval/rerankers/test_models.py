"""The rerankers that hold a model."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch

from rag_core.config import CrossEncoderReranker, LateInteractionReranker
from rag_core.errors import ModelError
from rag_core.models.endpoint import HttpPool
from rag_core.models.shared_model import SharedModel
from rag_core.retrieval.rerankers.cross_encoder import cross_encoder_scorer, load_reranking_cross_encoder
from rag_core.retrieval.rerankers.late_interaction import late_interaction_scorer, load_multi_vector_encoder
from rag_core.retrieval.rerankers.pairs import PairReranker
from rag_core.wiring.reranking import build_reranker, load_reranker

QUESTION = "how do i rotate the keys"
TEXTS = ["rotate the keys weekly", "doors are of oak", "", "the key of a house", "two doors by night"]
LONG = "the keys of a house " * 30


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.multi_vector_files(tmp_path_factory.mktemp("colbert"))


def cross_encoder_model(folder: Path, batch_size: int = 2) -> SharedModel[Any]:
    return cross_encoder_scorer(lambda: load_reranking_cross_encoder(folder, torch.float32, "cpu"), batch_size)


def late_interaction_model(folder: Path, batch_size: int = 2) -> SharedModel[Any]:
    return late_interaction_scorer(lambda: load_multi_vector_encoder(folder, torch.float32, "cpu"), batch_size)


def scores(model: SharedModel[Any], question: str, texts: list[str]) -> list[float]:
    return asyncio.run(PairReranker(model).score(question, texts))


def test_a_cross_encoder_gives_the_sigmoid_of_what_transformers_computes(folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = [model(**tokenizer([QUESTION], [text], return_tensors="pt")).logits.item() for text in TEXTS]
    expected = 1 / (1 + np.exp(-np.array(logits)))
    assert scores(cross_encoder_model(folder), QUESTION, TEXTS) == pytest.approx(expected.tolist(), abs=1e-5)


def token_vectors(folder: Path, text: str) -> np.ndarray:
    from transformers import AutoModel, AutoTokenizer

    with torch.inference_mode():
        read = AutoModel.from_pretrained(folder).eval()(
            **AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
        )
    return torch.nn.functional.normalize(read.last_hidden_state[0], dim=-1).numpy()


def test_a_text_encoder_compares_its_token_vectors(bert: Path) -> None:
    question = token_vectors(bert, QUESTION)
    expected = [(question @ token_vectors(bert, text).T).max(axis=1).sum() for text in TEXTS]
    assert scores(late_interaction_model(bert), QUESTION, TEXTS) == pytest.approx(expected, abs=1e-4)


def test_a_model_trained_for_late_interaction_keeps_its_projection(colbert: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(colbert), device="cpu")
    assert model.get_embedding_dimension() == 8
    question = model.encode_query([QUESTION], convert_to_numpy=True)[0]
    expected = [
        (question @ document.T).max(axis=1).sum() for document in model.encode_document(TEXTS, convert_to_numpy=True)
    ]
    assert scores(late_interaction_model(colbert), QUESTION, TEXTS) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_batches_and_single_pairs_have_the_same_scores(folder: Path, colbert: Path, batch_size: int) -> None:
    for model in (cross_encoder_model(folder, batch_size), late_interaction_model(colbert, batch_size)):
        alone = [scores(model, QUESTION, [text])[0] for text in TEXTS]
        assert scores(model, QUESTION, TEXTS) == pytest.approx(alone, abs=1e-4)


def test_a_text_longer_than_the_window_is_cut_at_its_end(folder: Path, colbert: Path) -> None:
    for model in (cross_encoder_model(folder), late_interaction_model(colbert)):
        assert len(LONG.split()) > 4 * tiny_models.WINDOW
        full, begun = scores(model, QUESTION, [LONG, " ".join(LONG.split()[: tiny_models.WINDOW])])
        assert full == pytest.approx(begun, abs=1e-4)
        assert len(scores(model, LONG, [LONG, "keys"])) == 2


def test_a_model_trained_on_short_passages_reads_longer_ones(colbert: Path, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    short = MultiVectorEncoder(str(colbert), device="cpu")
    short[0].document_length = 8
    short.save_pretrained(str(tmp_path), create_model_card=False)
    assert MultiVectorEncoder(str(tmp_path), device="cpu")[0].document_length == 8
    passage = " ".join(LONG.split()[: tiny_models.WINDOW // 2]) + " by night"
    expected = scores(late_interaction_model(colbert), QUESTION, [passage])
    assert scores(late_interaction_model(tmp_path), QUESTION, [passage]) == pytest.approx(expected, abs=1e-4)


def test_the_event_loop_continues_while_a_model_computes(folder: Path) -> None:
    """Each pass of the model waits for the loop. A blocked loop would make it time out."""
    passed = asyncio.Event()
    shared_model = cross_encoder_model(folder)

    async def score_in_loop() -> list[float]:
        loop = asyncio.get_running_loop()

        def wait_for_loop(_module: object, _inputs: object) -> None:
            asyncio.run_coroutine_threadsafe(set_passed(), loop).result(timeout=30)

        async def set_passed() -> None:
            passed.set()

        model = load_reranking_cross_encoder(folder, torch.float32, "cpu")
        model.register_forward_pre_hook(wait_for_loop)
        return await PairReranker(cross_encoder_scorer(lambda: model, 2)).score(QUESTION, TEXTS)

    assert asyncio.run(score_in_loop()) == pytest.approx(scores(shared_model, QUESTION, TEXTS), abs=1e-5)
    assert passed.is_set()


def test_work_of_a_cancelled_caller_ends_with_its_batch(folder: Path) -> None:
    from threading import Event

    entered, cancelled = Event(), Event()
    passes: list[int] = []
    model = load_reranking_cross_encoder(folder, torch.float32, "cpu")

    def count_batch(_module: object, _inputs: object) -> None:
        passes.append(1)
        entered.set()
        cancelled.wait(timeout=30)

    model.register_forward_pre_hook(count_batch)
    scorer = cross_encoder_scorer(lambda: model, 1)

    async def cancel_search() -> None:
        scoring = asyncio.create_task(PairReranker(scorer).score(QUESTION, TEXTS))
        await asyncio.to_thread(entered.wait, 30)
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scoring
        cancelled.set()

    asyncio.run(cancel_search())
    scorer.load()  # waits for the model to be free
    assert len(passes) == 1


def test_a_model_is_loaded_once_and_on_request_before_the_first_question(folder: Path) -> None:
    loads: list[int] = []

    def load_model() -> object:
        loads.append(1)
        return load_reranking_cross_encoder(folder, torch.float32, "cpu")

    scorer = cross_encoder_scorer(load_model, 2)
    assert loads == []
    scorer.load()
    scores(scorer, QUESTION, TEXTS)
    scorer.load()
    assert loads == [1]


def test_a_model_that_could_not_be_loaded_is_retried_after_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [ModelError("the hub is away"), load_reranking_cross_encoder(folder, torch.float32, "cpu")]

    def load_model() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, ModelError):
            raise outcome
        return outcome

    scorer = cross_encoder_scorer(load_model, 2)
    for _ in range(3):
        with pytest.raises(ModelError, match="the hub is away"):
            scores(scorer, QUESTION, TEXTS)
    assert len(outcomes) == 1
    monkeypatch.setattr("rag_core.models.shared_model.monotonic", lambda: float("inf"))
    assert len(scores(scorer, QUESTION, TEXTS)) == len(TEXTS)


def test_profiles_with_the_same_settings_share_a_model(folder: Path) -> None:
    settings = CrossEncoderReranker(type="cross_encoder", model=str(folder))
    assert build_reranker(settings, HttpPool()) is build_reranker(
        CrossEncoderReranker(type="cross_encoder", model=str(folder)), HttpPool()
    )


@pytest.mark.parametrize(
    "settings",
    [
        CrossEncoderReranker(type="cross_encoder", model="acme/not-there"),
        LateInteractionReranker(type="late_interaction", model="acme/not-there"),
    ],
)
def test_a_missing_model_is_named_when_it_is_needed(
    settings: CrossEncoderReranker | LateInteractionReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    reranker = build_reranker(settings, HttpPool())
    remedy = (
        "model acme/not-there is not a folder and cannot be downloaded from the model hub: give a folder with its files"
    )
    with pytest.raises(ModelError, match=remedy):
        load_reranker(settings)
    with pytest.raises(ModelError, match=remedy):
        asyncio.run(reranker.score(QUESTION, TEXTS))


def test_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded as a cross-encoder: give the folder of a cross-encoder"):
        cross_encoder_model(tmp_path).load()
    with pytest.raises(
        ModelError,
        match="cannot be loaded as a model for late interaction: give the folder of a model for late interaction",
    ):
        late_interaction_model(tmp_path).load()


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_weights_are_rejected(tmp_path: Path, damage: str) -> None:
    damaged = tiny_models.bert_files(tmp_path, "ForSequenceClassification")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100] if damage == "cut" else b"<html>no weights</html>")
    with pytest.raises(ModelError, match="cannot be loaded as a cross-encoder"):
        cross_encoder_model(damaged).load()
    with pytest.raises(ModelError, match="cannot be loaded as a model for late interaction"):
        late_interaction_model(damaged).load()


def test_a_classifier_is_not_a_cross_encoder(tmp_path: Path) -> None:
    classifier = tiny_models.bert_files(tmp_path, "ForSequenceClassification", labels=3)
    with pytest.raises(ModelError, match="must return one score per pair, got 3: use a cross-encoder"):
        cross_encoder_model(classifier).load()


def test_a_missing_gpu_is_an_error_with_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=r"reranker\.device is cuda:1, but PyTorch .* set reranker\.device to cpu"):
        load_reranker(CrossEncoderReranker(type="cross_encoder", model=str(folder), device="cuda:1"))
    with pytest.raises(ModelError, match=r"reranker\.device is cuda, but PyTorch .* set reranker\.device to cpu"):
        load_reranker(LateInteractionReranker(type="late_interaction", model=str(folder), device="cuda"))


def test_running_out_of_memory_is_named(folder: Path) -> None:
    model = load_reranking_cross_encoder(folder, torch.float32, "cpu")

    def run_out_of_memory(_module: object, _inputs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore of it.")

    model.register_forward_pre_hook(run_out_of_memory)
    with pytest.raises(
        ModelError,
        match=r"the reranker could not compute: .*, or device cpu \(CUDA out of memory\. Tried .*\)$",
    ):
        scores(cross_encoder_scorer(lambda: model, 2), QUESTION, TEXTS)


def test_a_score_that_is_not_a_number_is_rejected(folder: Path) -> None:
    model = load_reranking_cross_encoder(folder, torch.float32, "cpu")
    next(model.parameters()).data.fill_(torch.nan)
    with pytest.raises(ModelError, match="a score that is not a finite number: try precision fp32"):
        scores(cross_encoder_scorer(lambda: model, 2), QUESTION, TEXTS)


def test_bf16_is_close_to_fp32_and_its_scores_are_as_fine(folder: Path, bert: Path) -> None:
    halved = scores(
        cross_encoder_scorer(lambda: load_reranking_cross_encoder(folder, torch.bfloat16, "cpu"), 2), QUESTION, TEXTS
    )
    assert halved == pytest.approx(scores(cross_encoder_model(folder), QUESTION, TEXTS), abs=0.1)
    logits = torch.tensor(halved).logit()
    assert (logits - logits.bfloat16()).abs().max() > 1e-4
    meeting_halved = late_interaction_scorer(lambda: load_multi_vector_encoder(bert, torch.bfloat16, "cpu"), 2)
    meeting = scores(meeting_halved, QUESTION, TEXTS)
    assert meeting == pytest.approx(scores(late_interaction_model(bert), QUESTION, TEXTS), abs=0.2)
    steps = np.array(meeting) * 2**14
    assert np.abs(steps - steps.round()).max() > 1e-3
