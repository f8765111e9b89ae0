"""Labels that people give to answers, and how far two annotators agree."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from rag_core.errors import DatasetError, validation_lines

Name: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Pair: TypeAlias = tuple[str, str]
"""The labels of two annotators for the same answer."""


class Annotation(BaseModel):
    """One annotator's label for one answer: a line of an annotation file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    answer_id: Name
    annotator: Name
    label: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of two annotators on the `answers` that both labelled.

    `observed` is the share of equal labels. `kappa` is None if both used a single label, because it is undefined then.
    `disagreements` counts the pairs of different labels.
    """

    annotators: tuple[str, str]
    answers: int
    observed: float
    kappa: float | None
    disagreements: Mapping[Pair, int]


def read_annotations(path: Path) -> list[Annotation]:
    """Reads one JSON object per line. Raises DatasetError for a line that breaks a rule."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    return [_parse_line(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]


def measure_agreement(annotations: Iterable[Annotation]) -> list[Agreement]:
    """The agreement of every two annotators with answers in common, in the order of their names.

    Raises DatasetError if an annotator labelled an answer twice.
    """
    labels = defaultdict[str, dict[str, str]](dict)
    for annotation in annotations:
        if annotation.answer_id in labels[annotation.annotator]:
            raise DatasetError(f"{annotation.annotator!r} labelled the answer {annotation.answer_id!r} twice")
        labels[annotation.annotator][annotation.answer_id] = annotation.label
    pairs = {
        (first, second): [(labels[first][id], labels[second][id]) for id in labels[first] if id in labels[second]]
        for first, second in combinations(sorted(labels), 2)
    }
    return [
        Agreement(
            annotators=annotators,
            answers=len(labelled),
            observed=observed_agreement(labelled),
            kappa=cohen_kappa(labelled),
            disagreements=Counter(pair for pair in labelled if pair[0] != pair[1]),
        )
        for annotators, labelled in pairs.items()
        if labelled
    ]


def observed_agreement(pairs: Sequence[Pair]) -> float:
    return sum(first == second for first, second in pairs) / len(pairs)


def cohen_kappa(pairs: Sequence[Pair]) -> float | None:
    """The agreement beyond chance: 1 if all labels are equal, 0 as by chance, None if chance alone explains all.

    Jacob Cohen, A Coefficient of Agreement for Nominal Scales, Educational and Psychological Measurement 20 (1960).
    """
    first, second = (Counter(labels) for labels in zip(*pairs, strict=True))
    by_chance = sum(first[label] * second[label] for label in first) / len(pairs) ** 2
    return None if by_chance == 1 else (observed_agreement(pairs) - by_chance) / (1 - by_chance)


def _parse_line(location: str, line: str) -> Annotation:
    try:
        return Annotation.model_validate_json(line)
    except ValidationError as error:
        raise DatasetError("; ".join(validation_lines(error, location))) from None
