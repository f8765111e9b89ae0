"""The generation tasks of MT-RAG with reference passages (github.com/IBM/mt-rag-benchmark): one turn per line.

The passages of all tasks are the corpus, which is much smaller than that of the benchmark.
"""

from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.answer_layouts import parse_conversation
from rag_core.evaluation.dataset_lines import Row, list_field, string_field
from rag_core.evaluation.imports.imported_dataset import ImportedDataset
from rag_core.evaluation.imports.rows import read_rows
from rag_core.evaluation.question import CorpusDocument

ROLES = {"user": "user", "agent": "assistant"}


def read_mtrag(source: Path) -> ImportedDataset:
    corpus: dict[str, CorpusDocument] = {}
    conversations: dict[str, Row] = {}
    grades: dict[str, dict[str, int]] = {}
    for location, row in read_rows(source):
        conversation = _read_conversation(location, row)
        id = parse_conversation(location, conversation).id
        if id in conversations:
            raise DatasetError(f"{location}: duplicate task {id!r}")
        conversations[id] = conversation
        for document in _read_passages(location, row):
            corpus.setdefault(document.id, document)
            grades.setdefault(id, {})[document.id] = 1
    return ImportedDataset(
        corpus=list(corpus.values()),
        queries={id: conversation["question"] for id, conversation in conversations.items()},
        qrels={"test": grades},
        conversations=list(conversations.values()),
    )


def _read_conversation(location: str, row: Row) -> Row:
    """The line of conversations.jsonl."""
    messages = [_read_message(location, turn) for turn in list_field(location, row, "input", dict)]
    if not messages or messages[-1]["role"] != "user":
        raise DatasetError(f"{location}: 'input' must end with a turn of the user")
    targets = list_field(location, row, "targets", dict)
    labels = row.get("Answerability", row.get("answerability"))
    if not isinstance(labels, list) or len(labels) != 1:
        raise DatasetError(f"{location}: 'Answerability' must be a list with one label, got {labels!r:.60}")
    return {
        "_id": string_field(location, row, "task_id"),
        "question": messages[-1]["content"],
        "history": messages[:-1],
        "reference": string_field(location, targets[0], "text", empty=True) if targets else "",
        "answerability": labels[0],
    }


def _read_message(location: str, turn: Row) -> dict[str, str]:
    speaker = string_field(location, turn, "speaker")
    if speaker not in ROLES:
        raise DatasetError(f"{location}: 'speaker' must be user or agent, got {speaker!r}")
    return {"role": ROLES[speaker], "content": string_field(location, turn, "text")}


def _read_passages(location: str, row: Row) -> list[CorpusDocument]:
    return [
        CorpusDocument(
            id=string_field(location, passage, "document_id"),
            text=string_field(location, passage, "text"),
            title=string_field(location, {"title": "", **passage}, "title", empty=True),
        )
        for passage in list_field(location, row, "contexts", dict)
    ]
