"""The notebooks run from top to bottom without network, and what their texts claim is true of their outputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tools.notebooks import FOLDER, list_notebooks, list_pictures, run_notebook

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]

PICTURES = {"1_ingest": 1, "2_retrieve": 2, "3_converse": 1, "4_evaluate": 3}
FACTS: Mapping[str, Mapping[str, object]] = {
    "1_ingest": {
        "first.documents['listed']": 53,
        "[first.documents[status] for status in ('completed', 'failed', 'skipped', 'quarantined')]": [49, 1, 2, 1],
        "are_spans": True,
        "'author' in text": False,
        "chunk.embedded_text.splitlines()[:3]": ["Rotation of signing keys", "key rotation", "Procedure"],
        "[second.documents[count] for count in ('changed', 'deleted', 'same')]": [1, 1, 51],
        "[second.chunks[count] for count in ('embedded', 'reused')]": [1, 4],
        "third.documents['same'] == third.documents['listed']": True,
        "third.chunks['embedded']": 0,
        "int(stored.documents.sum())": 48,
        "sorted(set(stored.language))": ["de", "en", "fr"],
        "hit.origin.metadata['authors']": ["Tamsin Quellow"],
    },
    "2_retrieve": {
        "ranking.dense[ranking.answer == '*'].tolist()": [1],
        "ranking.bm25[ranking.answer == '*'].tolist()": [3],
        "'every 90 days' in reranked_hits[0].chunk.text": True,
        "sorted(times)": ["bm25", "dense", "fetch", "fuse", "rerank"],
        "by_word.document[by_word.dense == 1].tolist()": ["notice to mariners 7"],
        "by_word.dense[by_word.answer == '*'].tolist()": [4, 17],
        "by_word.bm25[by_word.answer == '*'].tolist()": [1, 2],
        "by_meaning.dense[by_meaning.answer == '*'].tolist()": [1],
        "by_meaning.bm25[by_meaning.answer == '*'].tolist()": [7],
        "by_meaning.fusion[by_meaning.answer == '*'].tolist()": [2],
        "[verdict(facts).step for facts in (lost_words, lost_picture)]": ["fusion", "ingestion"],
        "filtered.hits.tolist()": [5, 5, 5],
    },
    "3_converse": {
        "reply.answer.text": "Below 5 degrees water temperature a dive lasts no more than 25 minutes. [1]",
        "text[citation.start : citation.end] == citation.quote": True,
        "alone.answer.finish": "passages",
        "followed.standalone": "How many of them have to be on the island? (Rotation of signing keys)",
        "'Two of the three must be on the island at all times.' in followed.answer.text": True,
        "sorted(variant.weight for variant in understanding.variants)": [0.5, 0.5, 1.0, 1.0],
        "[turn.understanding.is_shift for turn in talk[1:]]": [False, False, True] * 2,
        "['The diving permit' in {one.title for one in turn.answer.citations} for turn in talk[:4]]": [True] * 3
        + [False],
        "talk[4].standalone": "How much of it does one unit hold? (Turbine bearings)",
        "'a unit holds 1,150 litres' in talk[4].answer.text": True,
        "talk[5].standalone": "And how many people does a dive need? (The diving permit)",
        "talk[5].answer.text.startswith('A dive needs five people: ')": True,
        "[refused.answer.finish, len(refused.answer.citations)]": ["abstained", 0],
        "refused.answer.confidence < 0.3": True,
        "[claim.grade for claim in judged.claims]": ["supported", "supported", "unsupported", "unsupported"],
    },
    "4_evaluate": {
        "len(questions)": 91,
        "means['hybrid (default)'].mean > max(means['bm25'].mean, means['dense'].mean)": True,
        "comparison.worse": 0,
        "comparison.better > 5 and comparison.p < 0.01 and comparison.difference.low > 0": True,
        "bins[0].right.mean < 0.5": True,
        "int((~answerable)[rated.confidence.nsmallest(bins[0].count).index].sum()) > 0.7 * len(UNANSWERABLE)": True,
        "all(group.right.mean > group.confidence for group in bins[1:4])": True,
        "separation.mean > 0.9": True,
        "bool(wrong['in passages'][wrong.expected.ne('') & wrong.finish.eq('stop')].all())": True,
        "'How many calories does the seaweed custard have?' in set(wrong.question)": True,
        "{change: result.outcome for change, result in results.items()}": {
            "dense instead of hybrid": "fail",
            "bm25 instead of hybrid": "fail",
            "hybrid instead of dense": "pass",
        },
    },
}
"""Values of expressions before the last cell of each notebook."""

OPEN_STORE = """
from rag_core import open_knowledge_base
from rag_core.notebook.temporary_home import TemporaryHome

home = TemporaryHome()
kb = open_knowledge_base()"""


def with_facts(notebook: Any, expressions: list[str]) -> Any:
    """A copy whose last cell but one prints the values of the expressions as a list in JSON."""
    program = f"import json\nprint(json.dumps([{', '.join(expressions)}]))"
    cells = [*notebook.cells[:-1], nbformat.v4.new_code_cell(program, id="facts"), notebook.cells[-1]]
    return nbformat.from_dict({**notebook, "cells": cells})


def outputs_of(executed: Any) -> list[Any]:
    return [output for cell in executed.cells for output in cell.get("outputs", [])]


def test_every_notebook_is_run() -> None:
    assert {*FACTS} == {*PICTURES} == {path.stem for path in list_notebooks()}


@pytest.mark.parametrize("name", FACTS)
def test_a_notebook_shows_what_its_text_claims_and_leaves_nothing_behind(
    name: str, short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = short_folder / name
    temporary.mkdir()
    temporary.chmod(0o755)  # for root, Postgres runs as another user
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RAG_STORE__URL", "postgresql://nobody@127.0.0.1:1/nothing")  # that of a user
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)

    executed = run_notebook(with_facts(notebook, list(FACTS[name])))

    (printed,) = (cell.outputs[0].text for cell in executed.cells if cell.id == "facts")
    assert dict(zip(FACTS[name], json.loads(printed), strict=True)) == FACTS[name]
    assert [output for output in outputs_of(executed) if output.get("name") == "stderr"] == []
    pictures = list_pictures(executed)
    assert len(pictures) == PICTURES[name]
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 10_000 for picture in pictures)
    assert [path.name for path in temporary.glob("rag-*")] == []


def test_a_notebook_that_fails_leaves_no_store_behind(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = short_folder / "failed"
    temporary.mkdir()
    temporary.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(temporary))
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, source in enumerate((OPEN_STORE, "1 / 0"))]
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run_notebook(nbformat.v4.new_notebook(cells=cells))
    assert [path.name for path in temporary.glob("rag-*")] == []
