"""The samples of ragas with one turn: `user_input`, `reference` and `reference_contexts` (docs.ragas.io).

Each different context becomes a document, with grade 1 for the questions that have it. Other keys are ignored: they
hold what a pipeline retrieved and answered.
"""

from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset_lines import Row, list_field, string_field
from rag_core.evaluation.imports.imported_dataset import ImportedDataset
from rag_core.evaluation.imports.rows import read_rows
from rag_core.evaluation.question import CorpusDocument


def read_ragas(source: Path) -> ImportedDataset:
    ids_by_context: dict[str, str] = {}
    queries: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = {}
    answers: list[Row] = []
    for number, (location, row) in enumerate(read_rows(source), start=1):
        if isinstance(row.get("user_input"), list):
            raise DatasetError(f"{location}: 'user_input' must be one question, got a conversation")
        id = f"q{number}"
        queries[id] = string_field(location, row, "user_input")
        for context in list_field(location, row, "reference_contexts", str):
            document = ids_by_context.setdefault(context, f"c{len(ids_by_context) + 1}")
            grades.setdefault(id, {})[document] = 1
        if "reference" in row:
            answers.append({"_id": id, "answers": [string_field(location, row, "reference")], "answerable": True})
    if not ids_by_context:
        raise DatasetError(f"{source}: no row has 'reference_contexts', so there are no documents to search")
    corpus = [CorpusDocument(id=id, text=text) for text, id in ids_by_context.items()]
    return ImportedDataset(corpus=corpus, queries=queries, qrels={"test": grades}, answers=answers)
