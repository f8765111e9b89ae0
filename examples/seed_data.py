"""Fills the collection `hyperkb` with the texts of a folder, and writes them with their questions as a dataset.

Example: python examples/seed_data.py demo/corpus demo/questions.jsonl experiments/sample
"""

import json
import sys
from pathlib import Path

from rag_core import open_knowledge_base
from rag_core.evaluation.dataset import write_dataset
from rag_core.evaluation.question import CorpusDocument, Question
from rag_core.types import Document

COLLECTION = "hyperkb"


def main(folder: str, questions_file: str, dataset: str) -> None:
    paths = [path for suffix in ("md", "txt") for path in sorted(Path(folder).rglob(f"*.{suffix}"))]
    texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    with open_knowledge_base() as knowledge:
        report = knowledge.add([Document(uri=id, text=text) for id, text in texts.items()], COLLECTION)
    rows = [json.loads(line) for line in Path(questions_file).read_text(encoding="utf-8").splitlines()]
    questions = [
        Question(id=f"q{n}", text=row["question"], grades={row["path"]: 1})
        for n, row in enumerate(rows, start=1)
        if row["path"] in texts
    ]
    write_dataset(Path(dataset), [CorpusDocument(id=id, text=text) for id, text in texts.items()], questions)
    stored = report.documents["completed"]
    print(
        f"{stored} documents are in {COLLECTION}; {dataset} has {len(texts)} documents and {len(questions)} questions"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
