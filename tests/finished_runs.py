"""Finished runs with invented values, for the tests of reports."""

from typing import Any

from rag_core.evaluation.finished_run import FinishedAnswer, FinishedQuestion, FinishedRun


def question(
    number: int, rank: int | None = 1, answer: FinishedAnswer | None = None, **values: Any
) -> FinishedQuestion:
    """A question whose relevant document `d` has the rank in the hits, and is first in the dense leg."""
    others = [f"x{i}" for i in range((rank or 11) - 1)]
    value = 1 / rank if rank else 0.0
    defaults = {
        "text": f"Who keeps seal {number}?",
        "grades": {"d": 1},
        "rankings": {"dense": ["d"], "final": [*others, *(["d"] if rank else [])]},
        "measures": {"ndcg@10": value, "recall@5": value, "recall@10": value, "mrr": value, "map": value},
        "timings": {"dense": 0.01},
        "seconds": 0.02,
        "lost": {"d": "" if rank else "fuse"},
    }
    return FinishedQuestion(id=f"q{number}", answer=answer, **{**defaults, **values})


def answer(score: float = 1.0, **values: Any) -> FinishedAnswer:
    defaults: dict[str, Any] = {
        "text": "The keeper. [1]",
        "finish": "stop",
        "references": ("keeper",),
        "measures": {"token_f1": score},
        "seconds": 0.5,
    }
    return FinishedAnswer(**{**defaults, **values})


def finished_run(*questions: FinishedQuestion, **report: Any) -> FinishedRun:
    """A run with these questions; `report` replaces fields of its report."""
    estimate = {"mean": 0.7, "low": 0.6, "high": 0.8}
    stage = {"measures": {"ndcg@10": estimate, "recall@10": estimate}, "errors": 0}
    defaults: dict[str, Any] = {
        "dataset": "seals",
        "split": "test",
        "profile": "default",
        "questions": len(questions),
        "failures": [],
        "stages": {"dense": stage, "final": stage},
        "headroom": 0.1,
        "lost": {"found": 3, "fuse": 1, "store": 0},
        "k": 20,
    }
    return FinishedRun(report={**defaults, **report}, questions=questions)


def waterfall(*ids: str) -> dict[str, Any]:
    """A failure waterfall over ten questions in which these lost their document in the fusion."""
    return {
        "questions": 10,
        "failed": len(ids),
        "labels": {"fusion_loss": len(ids)},
        "examples": [
            {
                "question": id,
                "text": f"Who keeps {id}?",
                "label": "fusion_loss",
                "detail": "The document was first in the dense leg.",
                "ranks": {"dense": 1, "final": None},
                "passages": False,
            }
            for id in ids
        ],
    }
