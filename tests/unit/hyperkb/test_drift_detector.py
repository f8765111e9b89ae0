"""Topic shifts in a session, under Hyper-KB's names."""

import pytest
from pydantic import ValidationError
from trees import HASHING

from rag_core.hyperkb import DriftDetector


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in HASHING:
        path, _, value = setting.partition("=")
        monkeypatch.setenv("RAG_" + path.upper().replace(".", "__"), value)


def test_the_detector_has_the_defaults_of_the_documents() -> None:
    detector = DriftDetector()
    assert (detector.shift_threshold, detector.drift_window) == (0.4, 3)
    with pytest.raises(ValidationError):
        DriftDetector(drift_window=0)


def test_a_question_on_something_else_is_a_shift() -> None:
    drift = DriftDetector().detect("paint green doors", ["rotate signing keys", "rotate old keys"])
    assert drift["is_shift"]
    assert drift["drift_score"] == pytest.approx(1 - drift["similarity"])
    assert (drift["turns_since_shift"], drift["stability"]) == (0, 0.0)


def test_the_subject_is_stable_five_turns_after_a_shift() -> None:
    questions = ["rotate signing keys"] * 2 + ["paint green doors"] * 6
    stabilities = [DriftDetector().detect(questions[turn], questions[:turn])["stability"] for turn in range(2, 8)]
    assert stabilities == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_the_first_question_is_not_a_shift() -> None:
    drift = DriftDetector().detect("rotate signing keys")
    assert drift == {"similarity": 1, "drift_score": 0, "is_shift": False, "turns_since_shift": 0, "stability": 0}
