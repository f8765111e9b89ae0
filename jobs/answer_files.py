"""The file of an evaluation's answers, for other programs and for inspection."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.evaluation.answer_measures import MeasuredAnswer

CITATION = pa.struct(
    [
        ("document", pa.string()),
        ("quote", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("grade", pa.string()),
    ]
)
PASSAGE = pa.struct([("document", pa.string()), ("text", pa.string())])
ANSWERS = pa.schema(
    [
        ("question_id", pa.string()),
        ("question", pa.string()),
        ("answer", pa.string()),
        ("finish", pa.string()),
        ("confidence", pa.float64()),
        ("references", pa.list_(pa.string())),
        ("answerable", pa.bool_()),
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("failures", pa.map_(pa.string(), pa.string())),
        ("reasons", pa.map_(pa.string(), pa.string())),  # of the values, by measure
        ("citations", pa.list_(CITATION)),
        ("passages", pa.list_(PASSAGE)),
        ("grade", pa.string()),
        ("score", pa.float64()),
        ("error", pa.string()),
        ("seconds", pa.float64()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("turn", pa.int64()),
        ("failure", pa.string()),  # the label of the failure waterfall
    ]
)


def write_answers(
    folder: Path,
    answers: Sequence[MeasuredAnswer],
    document_id: Callable[[str], str],
    failures: Mapping[str, str],
) -> None:
    """Writes answers.parquet. `document_id` returns the dataset's id of a uri; `failures` holds labels by question."""
    rows = [{**answer_row(answer, document_id), "failure": failures.get(answer.question.id)} for answer in answers]
    pq.write_table(pa.Table.from_pylist(rows, ANSWERS), folder / "answers.parquet")


def answer_row(measured: MeasuredAnswer, document_id: Callable[[str], str]) -> dict[str, Any]:
    question, trace = measured.question, measured.trace
    return {
        "question_id": question.id,
        "question": question.text,
        "answer": trace.answer,
        "finish": trace.finish,
        "confidence": trace.confidence,
        "references": list(question.references),
        "answerable": question.answerable,
        "measures": list(measured.measures.items()),
        "failures": list(measured.failures.items()),
        "reasons": list(measured.reasons.items()),
        "citations": [
            {
                "document": document_id(cited.uri),
                "quote": cited.quote,
                "start": cited.start,
                "end": cited.end,
                "grade": cited.grade,
            }
            for cited in trace.citations
        ],
        "passages": [{"document": document_id(passage.uri), "text": passage.text} for passage in trace.passages],
        "grade": trace.grade,
        "score": trace.score,
        "error": trace.error,
        "seconds": trace.seconds,
        "prompt_tokens": trace.prompt_tokens,
        "completion_tokens": trace.completion_tokens,
        "turn": question.turn,
    }
