"""What `benchmarks.upgrade` runs with the former version: it fills a store, searches it, and changes its documents.

    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py fill DSN CHUNKS
    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py search DSN FILE
    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py change DSN FILE
    PYTHONPATH=PROGRAM python -P benchmarks/upgrade_load.py sample DSN FILE

`search` and `change` run until they are terminated, and write a line to FILE for each search and each sync.
`sample` makes a small store with rows of many kinds, and writes the hits of some searches to FILE.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rag_core import open_knowledge_base
from rag_core.types import Document

SETTINGS = ("embedding.type=hashing", "embedding.dimension=384", "chunking.tokens=64", "chunking.overlap=0")
WORDS = [f"{first}{second}" for first in ("gate", "tide", "lamp", "lock", "crane") for second in map(str, range(400))]
WORDS_OF_A_SENTENCE, SENTENCES, CHUNKS_OF_A_DOCUMENT, FEW = 30, 20, 10, 4
CHANGED_DOCUMENTS = 20
TENANTS = ("default-tenant", "another-tenant")
QUESTIONS = ("gate1 tide2 lamp3", "lock17 crane200", "gate399 gate18 lamp250 tide77")


def make_document(number: int, edition: int, sentences: int = SENTENCES) -> Document:
    choose = random.Random(f"{number} {edition}")
    lines = (" ".join(choose.choices(WORDS, k=WORDS_OF_A_SENTENCE)).capitalize() + "." for _ in range(sentences))
    return Document(uri=f"note:{number}", title=f"Note {number}", text="\n\n".join(lines))


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


def sample(dsn: str, file: str) -> None:
    notes = [make_document(number, 0, FEW) for number in range(4)]
    secret = replace(make_document(4, 0, FEW), access=("staff",))
    broken = Document(uri="note:broken", title="Broken", text="")
    for tenant in TENANTS:
        with open_knowledge_base(dsn, settings=[*SETTINGS, f"tenant={tenant}", "graph.type=rules"]) as knowledge:
            knowledge.add([*notes, secret, broken])
            knowledge.add([make_document(0, 1, FEW)])
            knowledge.ask(QUESTIONS[0], session_id="sample", user_id="u-1")
    Path(file).write_text(json.dumps(read_answers(dsn), indent=1) + "\n")


def read_answers(dsn: str) -> dict[str, dict[str, list[tuple[str, int, float]]]]:
    """The uri, the offset and the score of each hit, by tenant and question."""
    answers: dict[str, dict[str, list[tuple[str, int, float]]]] = {}
    for tenant in TENANTS:
        with open_knowledge_base(dsn, settings=[*SETTINGS, f"tenant={tenant}"]) as knowledge:
            answers[tenant] = {
                question: [
                    (hit.origin.uri, hit.chunk.start, round(hit.score, 6))
                    for hit in knowledge.search(question, 5, groups=("staff",))
                ]
                for question in QUESTIONS
            }
    return answers


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
    {"fill": fill, "search": search, "change": change, "sample": sample}[sys.argv[1]](*sys.argv[2:])
