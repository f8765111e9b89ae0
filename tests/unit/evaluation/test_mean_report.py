"""The means over several datasets."""

from rag_core.evaluation.mean_report import average_reports


def report(name: str, ndcg: float, **answers: float | None) -> dict[str, object]:
    return {
        "dataset": name,
        "conversation": None,
        "questions": 2,
        "stages": {"final": {"measures": {"ndcg@10": {"mean": ndcg, "low": 0.0, "high": 1.0}}}},
        "answers": {"measures": {measure: {"mean": mean} for measure, mean in answers.items()}},
    }


def test_every_dataset_has_the_same_weight_and_a_measure_must_be_of_all() -> None:
    mean = average_reports(
        [report("a", 0.5, token_f1=0.2, rouge_l=0.1, abstention=1.0), report("b", 1.0, token_f1=0.4, rouge_l=None)]
    )
    assert mean == {
        "dataset": "mean",
        "datasets": ["a", "b"],
        "conversation": None,
        "questions": 4,
        "stages": {"final": {"measures": {"ndcg@10": {"mean": 0.75}}}},
        "answers": {"measures": {"token_f1": {"mean": (0.2 + 0.4) / 2}}},
    }
