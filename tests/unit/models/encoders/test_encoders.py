import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as torch_weights

from rag_core.errors import ModelError
from rag_core.models.encoders import bert_layers
from rag_core.models.encoders.bert import BertEncoder
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.encoders.precision import has_fast_bf16
from rag_core.models.encoders.sentence_transformers import SentenceTransformersEncoder

pytestmark = pytest.mark.model

WORDS = "the apparent diffusion coefficient of human white matter falls with age naïve 東京 🎉 p<0.05".split()  # noqa: SIM905
TEXTS = ["", " ", "?", *(" ".join((WORDS * 40)[i : i + 1 + i * i // 4]) for i in range(47))]


@pytest.fixture(scope="module")
def folder() -> Path:
    return find_model_folder("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def fp32(folder: Path) -> BertEncoder:
    return BertEncoder(folder, "fp32")


@pytest.fixture(scope="module")
def reference(folder: Path) -> SentenceTransformersEncoder:
    return SentenceTransformersEncoder(folder, "fp32")


def copy_model(folder: Path, to: Path, config: dict[str, object]) -> Path:
    shutil.copytree(folder, to)
    written = json.loads((folder / "config.json").read_text()) | config
    (to / "config.json").write_text(json.dumps(written))
    return to


@dataclass(frozen=True)
class Touching:
    """Unpickled, it leaves a file."""

    path: Path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    assert rows.dtype == others.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    return (rows * others).sum(axis=1)


def test_the_forward_pass_agrees_with_sentence_transformers(
    fp32: BertEncoder, reference: SentenceTransformersEncoder
) -> None:
    assert len(TEXTS) == 50
    assert max(len(text.split()) for text in TEXTS) > 256
    assert cosines(fp32.embed(TEXTS), reference.embed(TEXTS)).min() > 0.99999


def test_bf16_is_as_good(folder: Path, reference: SentenceTransformersEncoder) -> None:
    texts = TEXTS if has_fast_bf16("cpu") else TEXTS[::5]  # which take seven times as long
    expected = reference.embed(texts)
    assert cosines(BertEncoder(folder, "bf16").embed(texts), expected).min() > 0.999
    assert cosines(SentenceTransformersEncoder(folder, "bf16").embed(texts), expected).min() > 0.999


def test_weights_that_onednn_does_not_multiply_stay_as_they_are(
    folder: Path, fp32: BertEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bert_layers, "_onednn_multiplies", lambda _: False)
    plain = BertEncoder(folder, "fp32")
    assert not plain._weights.layers[0].intermediate.weight.is_mkldnn
    assert cosines(plain.embed(TEXTS[:5]), fp32.embed(TEXTS[:5])).min() > 0.99999


def test_cls_pooling_agrees_too(folder: Path, tmp_path: Path) -> None:
    cls = copy_model(folder, tmp_path / "cls", {})
    pooling = {"word_embedding_dimension": 384, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (cls / "1_Pooling/config.json").write_text(json.dumps(pooling))
    rows = BertEncoder(cls, "fp32").embed(TEXTS)
    assert cosines(rows, SentenceTransformersEncoder(cls, "fp32").embed(TEXTS)).min() > 0.99999


def test_the_vectors_of_tokens_agree_with_sentence_transformers(
    fp32: BertEncoder, reference: SentenceTransformersEncoder
) -> None:
    texts = ["keys", "the apparent diffusion coefficient of naïve 東京 🎉 p<0.05", ""]
    for text, read in zip(texts, fp32.token_vectors(texts), strict=True):
        (expected,) = reference._model.encode([text], output_value="token_embeddings", normalize_embeddings=False)
        rows = expected.numpy()[1:-1]
        assert read.rows.shape == rows.shape
        assert len(read.spans) == len(rows)
        if len(rows):
            assert cosines(read.rows, rows / np.linalg.norm(rows, axis=1, keepdims=True)).min() > 0.9999


def test_every_token_has_its_place_in_the_text_also_beyond_the_window(fp32: BertEncoder) -> None:
    text = " ".join((WORDS * 80)[:700])
    (read,) = fp32.token_vectors([text])
    assert len(read.rows) == len(read.spans) > 3 * 256
    assert [start for start, _ in read.spans] == sorted(start for start, _ in read.spans)
    covered = "".join(text[start:end] for start, end in dict.fromkeys(read.spans))
    assert covered == text.replace(" ", "")


def test_no_texts_give_no_rows(fp32: BertEncoder, reference: SentenceTransformersEncoder) -> None:
    assert fp32.embed([]).shape == reference.embed([]).shape == (0, 384)


def test_rows_are_in_the_order_of_the_texts_whatever_their_lengths(fp32: BertEncoder) -> None:
    rows = fp32.embed(["a much longer question about keys", "keys", "doors"])
    assert (
        cosines(
            rows, np.vstack([fp32.embed([text]) for text in ["a much longer question about keys", "keys", "doors"]])
        ).min()
        > 0.99999
    )


def test_threads_share_the_texts_and_each_has_its_own_row(folder: Path, fp32: BertEncoder) -> None:
    texts = [*TEXTS, *reversed(TEXTS)]
    assert cosines(BertEncoder(folder, "fp32", threads=3).embed(texts), fp32.embed(texts)).min() > 0.99999


def test_prompts_come_before_documents_and_questions(folder: Path, fp32: BertEncoder) -> None:
    plain = fp32.embed(["passage: keys", "query: keys"])
    for encoder in (
        BertEncoder(folder, "fp32", document_prompt="passage: ", query_prompt="query: "),
        SentenceTransformersEncoder(folder, "fp32", document_prompt="passage: ", query_prompt="query: "),
    ):
        rows = np.vstack([encoder.embed(["keys"]), encoder.embed_questions(["keys"])])
        assert cosines(rows, plain).min() > 0.99999


def test_weights_can_have_the_names_of_a_part(folder: Path, tmp_path: Path, fp32: BertEncoder) -> None:
    named = copy_model(folder, tmp_path / "named", {})
    weights = load_file(named / "model.safetensors")
    save_file({f"bert.{name}": weight for name, weight in weights.items()}, named / "model.safetensors")
    assert (BertEncoder(named, "fp32").embed(["keys"]) == fp32.embed(["keys"])).all()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "mpnet"}, "model_type must be bert or roberta or xlm-roberta, got mpnet"),
        ({"hidden_act": "relu"}, "hidden_act must be gelu, got relu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be absolute, got relative_key"),
    ],
)
def test_another_architecture_is_refused_with_the_remedy(
    folder: Path, tmp_path: Path, config: dict[str, object], reason: str
) -> None:
    with pytest.raises(ModelError) as raised:
        BertEncoder(copy_model(folder, tmp_path / "other", config))
    assert str(raised.value) == (
        f"other is not a model for embedding.type bert ({reason}): use type sentence_transformers"
    )


def test_other_modules_and_poolings_are_refused_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    other = copy_model(folder, tmp_path / "other", {})
    listed = json.loads((folder / "modules.json").read_text())
    (other / "modules.json").write_text(json.dumps([*listed, {"type": "a.Dense", "path": "3_Dense"}]))
    with pytest.raises(ModelError, match=r"got also Dense\): use type sentence_transformers"):
        BertEncoder(other)
    (other / "1_Pooling/config.json").write_text('{"pooling_mode": "max"}')
    with pytest.raises(ModelError, match=r"pooling must be mean or cls, got max"):
        BertEncoder(other)


def test_weights_can_be_pickled_tensors(folder: Path, tmp_path: Path, fp32: BertEncoder) -> None:
    pickled = copy_model(folder, tmp_path / "pickled", {})
    weights = torch_weights(pickled / "model.safetensors")
    (pickled / "model.safetensors").unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    assert (BertEncoder(pickled, "fp32").embed(["keys"]) == fp32.embed(["keys"])).all()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_that_cannot_be_read_are_refused_by_their_file(folder: Path, tmp_path: Path, name: str) -> None:
    broken = copy_model(folder, tmp_path / "broken", {})
    (broken / "model.safetensors").unlink()
    (broken / name).write_bytes(b"<html>not found</html>")
    with pytest.raises(ModelError, match=rf"{re.escape(name)} contains no readable weights"):
        BertEncoder(broken)


def test_pickled_code_is_not_run(folder: Path, tmp_path: Path) -> None:
    hostile = copy_model(folder, tmp_path / "hostile", {})
    (hostile / "model.safetensors").unlink()
    torch.save({"weights": Touching(tmp_path / "touched")}, hostile / "pytorch_model.bin")
    with pytest.raises(ModelError, match="contains no readable weights"):
        BertEncoder(hostile)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("padding", [1, 3])
def test_roberta_counts_its_positions_from_the_padding_on(tmp_path: Path, padding: int) -> None:
    roberta = tiny_models.roberta_files(tmp_path, padding)
    texts = ["keys", "how do i rotate the keys of a house by night", "doors are of oak", "the " * 30]
    expected = SentenceTransformersEncoder(roberta, "fp32").embed(texts)
    assert cosines(BertEncoder(roberta, "fp32").embed(texts), expected).min() > 0.99999


def test_a_folder_without_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    other = copy_model(folder, tmp_path / "other", {})
    (other / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"it has neither model\.safetensors nor pytorch_model\.bin"):
        BertEncoder(other)
    with pytest.raises(ModelError, match="cannot be loaded as a text encoder: give the folder of a text encoder"):
        SentenceTransformersEncoder(other)
