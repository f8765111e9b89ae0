"""The files of a judge's evaluation, for other programs and for inspection."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_core.evaluation.judge_figures import JudgedClaim

CLAIMS = pa.schema(
    [
        ("claim_id", pa.string()),
        ("claim", pa.string()),
        ("supported", pa.bool_()),
        ("grade", pa.string()),
        ("score", pa.float64()),
        ("error", pa.string()),
        ("seconds", pa.float64()),
    ]
)


def write_claim_evaluation(folder: Path, judged: Sequence[JudgedClaim], report: Mapping[str, Any]) -> None:
    """Writes report.json and claims.parquet to a folder of `check_folder`."""
    rows = [
        {
            "claim_id": claim.claim.id,
            "claim": claim.claim.text,
            "supported": claim.claim.is_supported,
            "grade": claim.verdict.grade,
            "score": claim.verdict.score,
            "error": claim.error,
            "seconds": claim.seconds,
        }
        for claim in judged
    ]
    pq.write_table(pa.Table.from_pylist(rows, CLAIMS), folder / "claims.parquet")
    (folder / "report.json").write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
