"""What `benchmarks.upgrade` runs with the former version: it fills a store, searches it, and changes its documents.

    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py fill DSN CHUNKS
    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py search DSN FILE
    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py change DSN FILE

`search` and `change` run until they are terminated, and write a line to FILE for each search and each sync.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rag_core import open_knowledge_base
from rag_core.types import Document

SETTINGS = ("embedding.type=hashing", "embedding.dimension=384", "chunking.tokens=64", "chunking.overlap=0")
WORDS = [f"{first}{second}" for first in ("gate", "tide", "lamp", "lock", "crane") for second in map(str, range(400))]
WORDS_OF_A_SENTENCE, SENTENCES, CHUNKS_OF_A_DOCUMENT = 30, 20, 10
CHANGED_DOCUMENTS = 20


def make_document(number: int, edition: int) -> Document:
    choose = random.Random(f"{number} {edition}")
    sentences = (" ".join(choose.choices(WORDS, k=WORDS_OF_A_SENTENCE)).capitalize() + "." for _ in range(SENTENCES))
    return Document(uri=f"note:{number}", title=f"Note {number}", text="\n\n".join(sentences))


def fill(dsn: str, chunks: str) -> None:
    with open_knowledge_base(dsn, settings=SETTINGS) as knowledge:
        documents = (make_document(number, 0) for number in range(int(chunks) // CHUNKS_OF_A_DOCUMENT))
        report = knowledge.add(documents)
    print(f"filled: {report.documents['completed']} documents, {report.chunks['stored']} chunks", flush=True)


def search(dsn: str, file: str) -> None:
    choose = random.Random(file)
    with open_knowledge_base(dsn, settings=SETTINGS) as knowledge:

        def search_once() -> bool:
            return bool(knowledge.search(" ".join(choose.choices(WORDS, k=3)), 5))

        repeat(search_once, Path(file))


def change(dsn: str, file: str) -> None:
    editions = iter(range(1, sys.maxsize))
    with open_knowledge_base(dsn, settings=SETTINGS) as knowledge:

        def change_once() -> bool:
            edition = next(editions)
            report = knowledge.add([make_document(number, edition) for number in range(CHANGED_DOCUMENTS)])
            return report.documents["completed"] == CHANGED_DOCUMENTS

        repeat(change_once, Path(file))


def repeat(work: Callable[[], bool], file: Path) -> None:
    """Writes when each call ended, the seconds it took, and its error: empty if it returned true."""
    with file.open("w") as lines:
        while True:
            began = time.perf_counter()
            try:
                error = "" if work() else "incomplete"
            except Exception as failure:  # noqa: BLE001 - each failure is counted
                error = f"{type(failure).__name__}: {failure}"
            line = {"at": time.time(), "seconds": time.perf_counter() - began, "error": error}
            lines.write(json.dumps(line) + "\n")
            lines.flush()


if __name__ == "__main__":
    {"fill": fill, "search": search, "change": change}[sys.argv[1]](*sys.argv[2:])
