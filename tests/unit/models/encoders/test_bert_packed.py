"""The GPU's forward pass. Its FlashAttention does not run on a CPU: a plain attention replaces it there."""

from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rag_core.models.encoders.bert_layers import Weights, read_weights
from rag_core.models.encoders.bert_runs import forward_runs
from rag_core.models.encoders.model_files import find_model_folder

pytestmark = pytest.mark.model
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

BATCH = [[101, 2129, 102], [101, 102], [101, *range(2000, 2100), 102], [101, 2003, 2023, 102], [101, 3424, 102]]


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, _bounds: Tensor, _most: int, _most_keys: int
) -> Tensor:
    def attend(start: int, end: int) -> Tensor:
        heads = [part[start:end].transpose(0, 1)[None] for part in (queries, keys, values)]
        return F.scaled_dot_product_attention(*heads)[0].transpose(0, 1)

    return torch.cat([attend(start, end) for start, end in pairwise(bounds.tolist())])


@pytest.fixture(scope="module")
def bert_packed() -> ModuleType:
    """The module, imported when it is used: it imports torch's compiler, which takes seconds."""
    from rag_core.models.encoders import bert_packed

    return bert_packed


@pytest.fixture(scope="module")
def weights() -> Weights:
    return read_weights(find_model_folder("all-MiniLM-L6-v2"), torch.float32, "cpu")


@pytest.mark.parametrize("pooling", ["mean", "cls", "none"])
def test_it_agrees_with_the_pass_of_a_cpu_in_any_order(
    bert_packed: ModuleType, weights: Weights, pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bert_packed, "varlen_attn", plain_attention)
    together = bert_packed.forward_packed(BATCH, weights, pooling).numpy()
    alone = np.vstack([forward_runs([tokens], weights, pooling).numpy() for tokens in BATCH])
    assert together == pytest.approx(alone, abs=1e-5)


@needs_gpu
def test_a_gpu_attends_as_the_plain_one_does(bert_packed: ModuleType) -> None:
    drawn = torch.Generator("cuda").manual_seed(7)
    queries, keys, values = torch.randn(3, 120, 12, 32, generator=drawn, device="cuda", dtype=torch.bfloat16)
    bounds = torch.tensor([0, 1, 40, 120], device="cuda", dtype=torch.int32)
    expected = plain_attention(queries.float(), keys.float(), values.float(), bounds, bounds, 80, 80)
    attention = bert_packed.varlen_attn(queries, keys, values, bounds, bounds, 80, 80)
    assert (attention - expected).abs().max() < 0.02


@needs_gpu
@pytest.mark.parametrize("pooling", ["mean", "cls", "none"])
def test_a_gpu_agrees_with_a_cpu(bert_packed: ModuleType, weights: Weights, pooling: str) -> None:
    on_gpu = read_weights(find_model_folder("all-MiniLM-L6-v2"), torch.bfloat16, "cuda")
    rows = bert_packed.forward_packed(BATCH, on_gpu, pooling).cpu()
    expected = torch.cat([forward_runs([tokens], weights, pooling) for tokens in BATCH])
    assert (rows * expected).sum(dim=1).min() > 0.999
