"""The Parquet files of `rag feedback export`, for other programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.errors import UsageError
from rag_core.evaluation.drift import AnswerScore
from rag_core.evaluation.usage import Price, price_reply, summarize_days
from rag_core.storage.replies import RatedReply

TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.string())
REPLIES = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "question", "standalone", "collection", "profile")),
        *((name, pa.string()) for name in ("pipeline_version", "model", "verdict", "finish", "corrected_answer")),
        *((name, TEXTS) for name in ("chunk_ids", "cited_ids", "comments", "signals")),
        *((name, pa.int64()) for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "rating", "stars")),
        *((name, pa.float64()) for name in ("confidence", "seconds", "cost")),
        ("created_at", TIME),
    ]
)
DAYS = pa.schema(
    [
        ("day", pa.date32()),
        *((name, pa.string()) for name in ("profile", "pipeline_version", "collection", "model")),
        *((name, pa.int64()) for name in ("answers", "questions", "abstained", "cited", "judged", "supported")),
        *((name, pa.int64()) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")),
        *((name, pa.int64()) for name in ("thumbs_up", "thumbs_down", "corrected")),
        *((name, pa.float64()) for name in ("p50_seconds", "p95_seconds", "cost", "mean_confidence", "mean_stars")),
        ("signals", pa.map_(pa.string(), pa.int64())),
    ]
)


def write_usage(folder: Path, replies: Sequence[RatedReply], prices: Mapping[str, Price]) -> int:
    """Writes replies.parquet, one row an answer, and days.parquet. Returns the number of rows of the latter.

    Raises UsageError if the folder cannot be written to.
    """
    rows = [
        {
            **asdict(reply),
            "chunk_ids": list(map(str, reply.chunk_ids)),
            "cited_ids": list(map(str, reply.cited_ids)),
            "cost": price_reply(reply, prices),
        }
        for reply in replies
    ]
    days = [asdict(day) for day in summarize_days(replies, prices)]
    day_rows = [{**day, **day["key"], "signals": list(day["signals"].items())} for day in days]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, REPLIES), folder / "replies.parquet")
        pq.write_table(pa.Table.from_pylist(day_rows, DAYS), folder / "days.parquet")
    except OSError as error:
        raise UsageError(f"--out must be a folder that can be written to, got {folder}: {error.strerror}") from None
    return len(days)


def read_run_answers(run: Path) -> list[AnswerScore]:
    """The answers of a run of `rag evaluate --out`. Raises UsageError if it has none."""
    try:
        rows = pq.read_table(run / "answers.parquet", columns=["finish", "confidence"]).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise UsageError(f"{run} must be a folder of `rag evaluate --out` with answers.parquet: {error}") from None
    return [AnswerScore(finish=row["finish"], confidence=row["confidence"]) for row in rows]


def replace_text(path: Path, text: str) -> None:
    """Replaces a file at once, because another program can read it at any time.

    Raises UsageError if the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.new")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
