"""The agreement of annotators."""

import json
from itertools import chain, repeat
from pathlib import Path

import pytest

from rag_core.errors import DatasetError
from rag_core.evaluation.feedback import (
    Annotation,
    cohen_kappa,
    measure_agreement,
    observed_agreement,
    read_annotations,
)

COHEN_1960 = [[88, 10, 2], [14, 40, 6], [18, 10, 12]]
"""Of 200 patients, how many two judges put into each pair of three categories."""


def table_pairs(table: list[list[int]]) -> list[tuple[str, str]]:
    """One pair of labels for each count of a table."""
    cells = (repeat((str(row), str(column)), n) for row, line in enumerate(table) for column, n in enumerate(line))
    return list(chain.from_iterable(cells))


def test_kappa_equals_the_example_of_its_paper() -> None:
    pairs = table_pairs(COHEN_1960)
    assert observed_agreement(pairs) == pytest.approx(0.70)
    assert cohen_kappa(pairs) == pytest.approx(0.492, abs=0.0005)


@pytest.mark.parametrize(
    ("pairs", "kappa"),
    [
        ([("good", "good"), ("bad", "bad")], 1.0),
        ([("good", "bad"), ("bad", "good")], -1.0),
        ([("good", "good"), ("good", "bad"), ("bad", "good"), ("bad", "bad")], 0.0),
        ([("good", "good"), ("good", "good")], None),
    ],
)
def test_kappa_is_the_agreement_beyond_chance(pairs: list[tuple[str, str]], kappa: float | None) -> None:
    assert cohen_kappa(pairs) == kappa


def test_every_two_annotators_are_compared_on_the_answers_that_both_labelled() -> None:
    labels = {"ada": {"1": "good", "2": "bad", "3": "good"}, "bob": {"2": "good", "3": "good"}, "cy": {"4": "bad"}}
    (agreement,) = measure_agreement(
        Annotation(answer_id=id, annotator=annotator, label=label)
        for annotator, row in labels.items()
        for id, label in row.items()
    )
    assert (agreement.annotators, agreement.answers, agreement.observed) == (("ada", "bob"), 2, 0.5)
    assert agreement.disagreements == {("bad", "good"): 1}


def test_an_annotator_labels_an_answer_once() -> None:
    annotation = Annotation(answer_id="1", annotator="ada", label="good")
    with pytest.raises(DatasetError, match="'ada' labelled the answer '1' twice"):
        measure_agreement([annotation, annotation])


def test_a_line_that_breaks_a_rule_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    line = {"answer_id": "1", "annotator": "ada", "label": "good"}
    path.write_text(f"{json.dumps(line)}\n{json.dumps({**line, 'label': ' '})}\n")
    with pytest.raises(DatasetError, match=r"labels\.jsonl:2\.label"):
        read_annotations(path)
