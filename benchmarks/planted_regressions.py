"""Does the gate refuse a pipeline that was made worse on purpose?

Each regression is a change of the profile, measured by `rag evaluate` like any other change: the corpus is ingested and
searched with it. The gate then compares the run with that of the unchanged profile, over all datasets together. The
expected outcome was written down before the first run; `-` means: it depends on the number of questions, see the
difference that they can show. Regressions of the generator are measured on the datasets of --answers, from each
question's own documents, and there the gate reads token F1.

    python -m benchmarks.planted_regressions DATA/xquad_en DATA/mtrag_un DATA/cranfield --answers DATA/clapnq_generation
    python -m benchmarks.planted_regressions DATA/xquad_en --limit 100
"""

import argparse
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from anyio import to_thread

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from jobs.evaluation_runs import read_runs
from rag_core import open_knowledge_base
from rag_core.evaluation.comparison import compare_runs
from rag_core.evaluation.gate import Gate, MeasureGate, check_run
from rag_core.evaluation.measured_run import pair_runs
from rag_core.settings import load_settings
from rag_core.text.sentences import sentence_spans
from rag_core.types import Chunk, Document, Hit, Prompt, Query, chunk_id
from rag_core.wiring.chunking import build_chunker

RETRIEVAL_MEASURE, ANSWER_MEASURE = "ndcg@10", "token_f1"
BASE = "nothing changed"


def half_length(text: str) -> int:
    return len(text) // 2


def length_without_last_sentence(text: str) -> int:
    sentences = sentence_spans(text)
    return sentences[-1][0] if len(sentences) > 1 else len(text)


LENGTHS: Mapping[str, Callable[[str], int]] = {"half": half_length, "last_sentence": length_without_last_sentence}


class CutChunker:
    """The profile's chunks of the beginning of a document. `cut` names the function that computes its length."""

    def __init__(self, cut: str) -> None:
        self._length, self._chunker = LENGTHS[cut], build_chunker(load_settings())

    def split(self, document_id: UUID, document: Document) -> tuple[Chunk, ...]:
        length = self._length(document.text)
        return tuple(
            _cut_chunk(chunk, length)
            for chunk in self._chunker.split(document_id, document)
            if document.text[chunk.start : length].strip()
        )


def _cut_chunk(chunk: Chunk, length: int) -> Chunk:
    if chunk.end <= length:
        return chunk
    text = chunk.text[: length - chunk.start].rstrip()
    return replace(chunk, id=chunk_id(chunk.document_id, text, 0), text=text, end=chunk.start + len(text))


class ReversedRetriever:
    """The hits of a retriever in reverse order."""

    def __init__(self, retrieval: str) -> None:
        self._knowledge = open_knowledge_base(settings=[f"retrieval={retrieval}"])

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        hits = await to_thread.run_sync(self._knowledge.search, query.text, k, query.collection)
        scores = [hit.score for hit in hits]
        return [hit.rescored("reversed", score) for hit, score in zip(hits[::-1], scores, strict=True)]


class FirstSentence:
    """The first sentence of the best passage."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        for passage in prompt.passages[:1]:
            start, end = sentence_spans(passage.text)[0]
            yield f"{passage.text[start:end].strip()} [{passage.n}]"


class IgnoringGenerator:
    """The same sentence for each question, with a citation of the best passage."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        for passage in prompt.passages[:1]:
            yield f"This depends on the circumstances. [{passage.n}]"


@dataclass(frozen=True)
class Regression:
    name: str
    expected: str
    settings: Sequence[str]


def python_object(kind: type, **arguments: str) -> str:
    """The setting that names a class of this module."""
    quoted = ", ".join(f'{name}: "{value}"' for name, value in arguments.items())
    return f'{{type: python, object: "benchmarks.planted_regressions:{kind.__name__}", arguments: {{{quoted}}}}}'


WHOLE_SEARCH = "{type: hybrid, retrievers: {dense: {type: dense}, bm25: {type: bm25}}, fusion: {type: distribution}}"
RETRIEVAL = [
    Regression(BASE, "pass", []),
    Regression("hits reversed", "fail", [f"retrieval={python_object(ReversedRetriever, retrieval=WHOLE_SEARCH)}"]),
    Regression(
        "order of the bm25 leg flipped",
        "fail",
        [f"retrieval.retrievers.bm25={python_object(ReversedRetriever, retrieval='{type: bm25}')}"],
    ),
    Regression("depth 5", "-", ["retrieval.depth=5"]),
    Regression("stemming off", "-", ["parsing.detect_language=false"]),
    Regression("last sentence dropped", "-", [f"chunking={python_object(CutChunker, cut='last_sentence')}"]),
    Regression("half of each document dropped", "fail", [f"chunking={python_object(CutChunker, cut='half')}"]),
]
"""Those that change only the search come first, so that the corpus is ingested once for them."""
ANSWERS = [
    Regression(BASE, "pass", [f"generation={python_object(FirstSentence)}"]),
    Regression("generator that ignores passages", "fail", [f"generation={python_object(IgnoringGenerator)}"]),
]


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch):
        limit = ["--limit", str(arguments.limit)] if arguments.limit else []
        for line in _measure(RETRIEVAL, arguments.datasets, limit, scratch, RETRIEVAL_MEASURE):
            print(line, flush=True)
        if arguments.answers:
            for line in _measure(ANSWERS, arguments.answers, [*limit, "--own-documents"], scratch, ANSWER_MEASURE):
                print(line, flush=True)


def _measure(
    regressions: Sequence[Regression], datasets: Sequence[Path], options: Sequence[str], scratch: Path, measure: str
) -> Iterator[str]:
    """Yields the lines of a table. The first regression is the base of the others, and is measured twice."""
    base = _evaluate(regressions[0], datasets, options, scratch, scratch / measure / "base")
    yield ", ".join(f"{run.name} {len(run.values[measure])}" for run in read_runs(base)) + f" questions, {measure}"
    yield f"{'regression':36} {'expected':9} {'gate':13} {'difference':29} {'p':>6}  detectable"
    for number, regression in enumerate(regressions):
        folder = _evaluate(regression, datasets, options, scratch, scratch / measure / str(number))
        yield _format_row(regression, base, folder, measure)


def _format_row(regression: Regression, base: Path, folder: Path, measure: str) -> str:
    runs = read_runs(folder)
    pairs = pair_runs(read_runs(base), runs)
    outcome = check_run(Gate(measures={measure: MeasureGate()}), runs, pairs).outcome
    comparison = compare_runs(pairs, [measure])[0].comparison
    difference = comparison.difference
    change = f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
    return (
        f"{regression.name:36} {regression.expected:9} {outcome:13} {change:29} {comparison.p:.4f}  "
        f"{comparison.detectable:.4f}"
    )


def _evaluate(
    regression: Regression, datasets: Sequence[Path], options: Sequence[str], scratch: Path, out: Path
) -> Path:
    """Runs `rag evaluate` in a process of its own. Returns the folder with the runs."""
    settings = [word for setting in regression.settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "jobs.evaluate", *map(str, datasets), *options, "--out", str(out), *settings]
    ended = subprocess.run(command, env={**os.environ, "RAG_HOME": str(scratch)}, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{regression.name}: rag evaluate failed with {ended.returncode}\n{ended.stderr[-2000:]}")
    return out


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET", help="folders, as for rag evaluate")
    parser.add_argument("--answers", nargs="+", type=Path, default=[], metavar="DATASET")
    parser.add_argument("--limit", type=int, help="use only this number of questions of each dataset; default: all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
