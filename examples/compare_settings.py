"""Compares two settings by the rank of the right document, over questions whose documents are known.

Both settings search the same collection, so nothing is embedded twice. With few questions a difference can be chance:
the p-value says how often chance alone makes one as large. For datasets of your own, see `rag evaluate --against`.

Example: python examples/compare_settings.py demo/corpus demo/questions.jsonl retrieval.type=bm25 retrieval.type=dense
"""

import json
import sys
from pathlib import Path
from statistics import mean

from rag_core import open_knowledge_base
from rag_core.evaluation.metrics import reciprocal_rank
from rag_core.evaluation.significance import randomisation_p


def main(folder: str, questions: str, *settings: str) -> None:
    with open_knowledge_base() as knowledge:
        knowledge.ingest(folder)
    rows = [json.loads(line) for line in Path(questions).read_text(encoding="utf-8").splitlines()]
    scores = [score_questions(rows, setting) for setting in settings]
    for setting, values in zip(settings, scores, strict=True):
        print(f"{setting:<24} MRR@10 {mean(values):.3f} over {len(values)} questions")
    print(f"p = {randomisation_p(*scores):.2f}")


def score_questions(rows: list[dict[str, str]], setting: str) -> list[float]:
    """The reciprocal rank of the document of each question, 0 if it is not among the first ten."""
    values = []
    with open_knowledge_base(settings=[setting]) as knowledge:
        for row in rows:
            uris = dict.fromkeys(hit.origin.uri for hit in knowledge.search(row["question"], k=10))
            ranking = ["right" if uri.endswith(f"/{row['path']}") else uri for uri in uris]
            values.append(reciprocal_rank(ranking, {"right": 1}, 10))
    return values


if __name__ == "__main__":
    main(*sys.argv[1:])
