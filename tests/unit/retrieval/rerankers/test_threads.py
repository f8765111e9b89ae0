"""A model whose batches several threads score."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Barrier, Lock

import pytest
import torch

from rag_core.errors import ModelError
from rag_core.models.shared_model import BatchScorer, SharedModel
from rag_core.models.thread_copies import copy_for_threads
from rag_core.protocols import Pair
from rag_core.retrieval.rerankers.cross_encoder import cross_encoder_scorer, load_reranking_cross_encoder
from rag_core.retrieval.rerankers.late_interaction import late_interaction_scorer, load_multi_vector_encoder

PAIRS = [("how do i rotate the keys", "keys and doors " * (number % 7)) for number in range(23)]


@pytest.fixture(autouse=True)
def threads_of_torch() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def scores(model: SharedModel[object], threads: int) -> list[float]:
    model.load(threads)
    return asyncio.run(model.score(PAIRS))


def test_several_threads_and_one_have_the_same_scores(folder: Path, bert: Path) -> None:
    builders: list[Callable[[], SharedModel[object]]] = [
        lambda: cross_encoder_scorer(lambda: load_reranking_cross_encoder(folder, torch.float32, "cpu"), 4),
        lambda: late_interaction_scorer(lambda: load_multi_vector_encoder(bert, torch.float32, "cpu"), 4),
    ]
    for make in builders:
        assert scores(make(), 3) == pytest.approx(scores(make(), 1), abs=1e-6)


def test_copies_share_their_weights_but_no_mutable_state(folder: Path) -> None:
    model = load_reranking_cross_encoder(folder, torch.float32, "cpu")
    same, other = copy_for_threads(model, 2)
    assert same is model
    addresses = [[weight.data_ptr() for weight in copy.parameters()] for copy in (model, other)]
    assert addresses[0] == addresses[1]
    assert other.tokenizer is not model.tokenizer
    assert torch.get_num_threads() == 1


class Meeting:
    """A model that scores batches when each thread has one. The batch `failing` fails."""

    def __init__(self, threads: int, failing: int = -1) -> None:
        self.barrier, self.lock, self.failing = Barrier(threads, timeout=30), Lock(), failing
        self.batches: list[list[str]] = []


def meeting(model: Meeting, _pairs: Sequence[Pair]) -> BatchScorer:
    def score_batch(pairs: Sequence[Pair]) -> list[float]:
        with model.lock:
            model.batches.append([text for _, text in pairs])
            number = len(model.batches)
        model.barrier.wait()
        if number == model.failing:
            raise RuntimeError("out of memory")
        return [float(len(text)) for _, text in pairs]

    return score_batch


def test_each_thread_has_a_batch_of_about_the_same_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.models.thread_copies.copy_for_threads", lambda model, count: [model] * count)
    model = Meeting(2)
    assert scores(SharedModel("reranker", lambda: model, meeting, 8), 2) == [len(text) for _, text in PAIRS]
    assert [len(batch) for batch in sorted(model.batches, key=len)] == [5, 6, 6, 6]


def test_a_failed_batch_fails_the_request_after_all_threads_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_core.models.thread_copies.copy_for_threads", lambda model, count: [model] * count)
    model = Meeting(2, failing=1)
    scorer = SharedModel("reranker", lambda: model, meeting, 12)
    with pytest.raises(ModelError, match=r"the reranker could not compute: .*out of memory"):
        scores(scorer, 2)
    assert len(model.batches) == 2
    assert scores(scorer, 2) == [len(text) for _, text in PAIRS]
