import pytest

from rag_core.answering.judging.verdicts import Thresholds, overall_grade, verdict_from_claims
from rag_core.types import Claim, Grade


def claims(*grades: Grade) -> list[Claim]:
    return [Claim(start=0, end=1, grade=grade, score=float(grade == "supported")) for grade in grades]


@pytest.mark.parametrize(
    ("grades", "grade"),
    [
        (["supported", "supported"], "supported"),
        (["supported", "partial"], "partial"),
        (["supported", "unsupported"], "partial"),
        (["partial", "partial"], "partial"),
        (["partial", "unsupported"], "unsupported"),
        (["supported", "unsupported", "unsupported"], "unsupported"),
        (["unsupported"], "unsupported"),
        (["unchecked", "unchecked"], "unchecked"),
        (["supported", "unchecked"], "partial"),
        (["unsupported", "unchecked"], "unsupported"),
    ],
)
def test_an_answer_is_unsupported_if_more_of_its_claims_are_than_are_supported(
    grades: list[Grade], grade: Grade
) -> None:
    assert overall_grade(claims(*grades)) == grade


def test_the_score_is_the_mean_of_the_claims() -> None:
    assert verdict_from_claims(claims("supported", "supported", "unsupported"), "by hand").score == pytest.approx(2 / 3)


def test_claims_that_are_unchecked_do_not_count_in_the_score() -> None:
    assert verdict_from_claims(claims("supported", "unchecked"), "by hand").score == 1.0
    assert verdict_from_claims(claims("unchecked"), "by hand").score == 0.0


def test_an_answer_that_claims_nothing_is_unchecked() -> None:
    assert verdict_from_claims([], "by hand").grade == "unchecked"


@pytest.mark.parametrize(
    ("score", "grade"),
    [(1.0, "supported"), (0.6, "supported"), (0.59, "partial"), (0.45, "partial"), (0.44, "unsupported")],
)
def test_a_threshold_belongs_to_the_grade_above_it(score: float, grade: Grade) -> None:
    assert Thresholds(supported=0.6, partial=0.45).grade(score) == grade
