import subprocess
import sys
from pathlib import Path

import pytest

import rag_core

HEAVY = {"torch", "ray", "transformers", "sentence_transformers", "unstructured"}
MODEL_FILES = {
    "rag_core.models.encoders.bert",
    "rag_core.models.encoders.bert_layers",
    "rag_core.models.encoders.bert_packed",
    "rag_core.models.encoders.bert_runs",
    "rag_core.models.encoders.bert_splade",
    "rag_core.models.encoders.precision",
    "rag_core.models.encoders.sentence_transformers",
    "rag_core.models.encoders.splade",
    "rag_core.models.thread_copies",
}
"""Those that hold a model. Whoever asks for such a model imports them."""

LOADED = """
import sys
import {module}
print(*sorted({heavy} & set(sys.modules)))
"""
BLOCKED = """
import importlib, sys
sys.modules |= dict.fromkeys({heavy})
for module in {modules}:
    importlib.import_module(module)
print("imported")
"""


def modules() -> list[str]:
    root = Path(rag_core.__file__).parent
    files = (file.relative_to(root.parent).with_suffix("") for file in root.rglob("*.py"))
    return sorted(".".join(file.parts).removesuffix(".__init__") for file in files)


def output(program: str) -> str:
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["rag_core", "rag_core.wiring.ingestion", "rag_core.wiring.retrieval", "rag_cli.app"]
)
def test_no_library_of_models_or_clusters_is_loaded_with(module: str) -> None:
    assert output(LOADED.format(module=module, heavy=HEAVY)) == ""


@pytest.mark.slow
def test_the_library_imports_where_neither_torch_nor_ray_is_installed() -> None:
    wanted = [module for module in modules() if module not in MODEL_FILES]
    assert len(wanted) > 50
    assert output(BLOCKED.format(modules=wanted, heavy=HEAVY)) == "imported"


def test_the_files_of_models_are_where_the_models_are() -> None:
    assert set(modules()) >= MODEL_FILES
