"""The judge by words, with vectors that are scripted."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fakes.answering import passage
from fakes.judging import cite_markers, grades

from rag_core.answering.judging.lexical import LexicalJudge, TokenSimilarity
from rag_core.answering.judging.verdicts import Thresholds
from rag_core.models.encoders.bert import TokenVectors
from rag_core.types import Answer, Passage, Verdict

KEYS = passage(
    1, "The keys of the Berlin office are rotated every 90 days. They are not stored on paper.", title="Keys"
)
DOORS = passage(2, "All 12 doors are of oak. CNNs watch them.", title="Doors")


class ScriptedTokens:
    """Equal words have equal vectors, and `synonyms` those of another word; `encoded` counts the texts."""

    def __init__(self, **synonyms: str) -> None:
        self.synonyms, self.encoded = synonyms, list[str]()
        self.places = dict[str, int]()

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        self.encoded += texts
        return [self._of(text) for text in texts]

    def _of(self, text: str) -> TokenVectors:
        words = text.split()
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        plain = [self.synonyms.get(word.strip(".,").lower(), word.strip(".,").lower()) for word in words]
        rows = np.zeros((len(words), 200), np.float32)
        for row, word in enumerate(plain):
            rows[row, self.places.setdefault(word, len(self.places))] = 1
        lengths = [len(word.rstrip(".,")) for word in words]
        return TokenVectors(rows, tuple((int(a), int(a) + n) for a, n in zip(starts, lengths, strict=False)))


def judge_answer(answer: Answer, *passages: Passage, encoder: ScriptedTokens | None = None) -> Verdict:
    nearness = TokenSimilarity(encoder) if encoder else None
    judge = LexicalJudge(Thresholds(supported=0.6, partial=0.45), nearness)
    return asyncio.run(judge.judge(answer, passages or (KEYS, DOORS)))


def one(text: str, *passages: Passage, encoder: ScriptedTokens | None = None) -> tuple[str, float, str]:
    (claim,) = judge_answer(cite_markers(text), *passages, encoder=encoder).claims
    return claim.grade, claim.score, claim.reason


def test_a_claim_of_the_passages_is_supported_if_nothing_contradicts_it() -> None:
    assert one("The keys of the Berlin office are rotated every 90 days [1].") == ("supported", 1.0, "")


def test_the_score_is_the_share_of_content_stems_that_are_held() -> None:
    assert one("Rotating keys annoys everybody.")[:2] == ("partial", 0.5)
    assert one("Unicorns sing loudly.") == ("unsupported", 0.0, "not in the passages: Unicorns, sing, loudly")


def test_a_number_that_the_passages_do_not_hold_makes_its_sentence_unsupported() -> None:
    grade, score, reason = one("The keys of the Berlin office are rotated every 91 days [1].")
    assert (grade, reason) == ("unsupported", "91 is not in the passages")
    assert score == pytest.approx(1 - 1 / 7 - 0.375)


def test_a_number_of_a_passage_that_the_sentence_does_not_cite_is_not_held() -> None:
    assert one("The keys are rotated every 12 days [1].")[2] == "12 is not in the passages"
    assert one("All twelve doors are of oak [2].")[0] == "supported"


def test_a_number_of_title_or_heading_is_held() -> None:
    assert one("Keys of 2024 are rotated.", passage(1, "Keys are rotated.", title="Rules of 2024"))[0] == "supported"


def test_a_number_of_the_headings_of_the_first_chunk_of_several_is_held() -> None:
    source = passage(1, "Keys are rotated.")
    later = replace(source.chunks[0], start=9)
    joined = replace(source, chunks=(replace(later, start=0, prefix="Rules of 2024"), later))
    assert one("Keys of 2024 are rotated.", joined)[0] == "supported"


@pytest.mark.parametrize("claim", ["Keys are stored on paper.", "The doors are not of oak."])
def test_a_negation_that_only_one_side_has_leaves_a_claim_supported_in_part_at_the_most(claim: str) -> None:
    grade, score, reason = one(claim)
    assert (grade, score) == ("partial", 0.625)
    assert "is negated" in reason


def test_a_name_that_the_passages_do_not_hold_costs_half_as_much_as_a_number() -> None:
    assert one("The keys of the Munich office are rotated every 90 days.") == (
        "supported",
        pytest.approx(1 - 1 / 7 - 0.1875),
        "",
    )
    assert one("The best doors: a CNN watches them.")[1] == pytest.approx(1 - 2 / 4)


PLANS = passage(
    3,
    "The Silver plan covers theft and costs 30 dollars each month. It can be cancelled by letter, by mail or by phone,"
    " whatever the reason. Customers who travel, work abroad or own a boat often choose the Gold plan, which covers"
    " everything and costs 90 dollars.",
)


def test_a_number_that_the_passages_have_only_among_other_words_leaves_a_claim_supported_in_part_at_the_most() -> None:
    assert one("The Silver plan costs 30 dollars.", PLANS) == ("supported", 1.0, "")
    assert one("It can be cancelled by phone 90.", PLANS) == (
        "partial",
        0.625,
        "90 is among other words in the passages",
    )


def test_a_name_that_the_passages_have_only_among_other_words_costs_half_as_much_as_a_number() -> None:
    assert one("It can be cancelled by letter: Gold.", PLANS) == (
        "partial",
        0.8125,
        "Gold is among other words in the passages",
    )


def test_a_number_is_in_its_place_if_one_of_its_neighbours_in_any_passage_is_near_it() -> None:
    assert one("A boat costs 90 or 30 dollars.", PLANS)[0] == "supported"
    far = passage(4, "Gold is heavy.")
    assert one("Silver is heavy: 90.", PLANS, far)[2] == "90 is among other words in the passages"
    assert one("Gold is heavy: 90.", PLANS, far)[0] == "supported"


def test_half_of_the_score_with_vectors_is_the_similarity_of_the_two_farthest_words() -> None:
    claim = "Wooden doors are watched."
    assert one(claim)[1] == pytest.approx(2 / 3)
    assert one(claim, encoder=ScriptedTokens())[1] == pytest.approx(0.5 * 2 / 3)
    assert one(claim, encoder=ScriptedTokens(wooden="oak", watched="watch"))[1] == pytest.approx(0.5 * 2 / 3 + 0.5)


def test_the_score_of_an_answer_is_that_of_its_claims_read_as_one() -> None:
    verdict = judge_answer(cite_markers("The keys are rotated every 90 days [1]. Unicorns sing [2]."))
    assert [claim.score for claim in verdict.claims] == [1.0, 0.0]
    assert (verdict.grade, verdict.score, verdict.method) == ("partial", pytest.approx(5 / 7), "lexical proxy")


def test_spans_are_those_of_the_citations_so_that_each_gets_its_grade() -> None:
    answer = cite_markers("The keys are rotated every 90 days [1]. Unicorns sing [2].")
    verdict = judge_answer(answer)
    assert {(claim.start, claim.end) for claim in verdict.claims} == {citation.claim for citation in answer.citations}
    assert list(grades(answer, verdict).values()) == ["supported", "unsupported"]


def test_passages_are_encoded_once_for_an_answer_that_is_judged_sentence_by_sentence() -> None:
    encoder = ScriptedTokens()
    judge = LexicalJudge(Thresholds(supported=0.6, partial=0.45), TokenSimilarity(encoder))
    for text in ("Keys are rotated.", "Doors are of oak."):
        asyncio.run(judge.judge(Answer(text=text), (KEYS, DOORS)))
    assert len(encoder.encoded) == 2 + 2


def test_an_answer_without_passages_is_unsupported() -> None:
    verdict = asyncio.run(
        LexicalJudge(Thresholds(supported=0.6, partial=0.45), TokenSimilarity(ScriptedTokens())).judge(
            Answer(text="Keys are rotated."), ()
        )
    )
    assert (verdict.grade, verdict.score) == ("unsupported", 0.0)


ENGLISH = passage(1, "Ray Serve has deployed models since 2020. Each replica has its own process.", language="en")


@pytest.mark.parametrize(
    ("claim", "grade"),
    [
        ("Jede Kopie läuft in einem getrennten Vorgang.", "unchecked"),
        ("每个副本都有自己的进程。", "unchecked"),
        ("Модели работают уже давно.", "unchecked"),
        ("Seit 2017 werden damit Modelle bereitgestellt.", "unsupported"),
        ("Ray Serve, 2020.", "supported"),
        ("Ray Tune, Kuberay, 2020.", "unsupported"),
        ("Every copy is written to a different disk.", "unsupported"),
    ],
)
def test_a_claim_in_another_language_is_unchecked_unless_its_words_or_numbers_decide(claim: str, grade: str) -> None:
    assert one(claim, ENGLISH)[0] == grade


def test_the_reason_names_the_language_of_a_claim_that_is_unchecked() -> None:
    grade, score, reason = one("Jede Kopie läuft in einem getrennten Vorgang [1].", ENGLISH)
    assert (grade, score) == ("unchecked", 0.0)
    assert reason == "cannot tell: the claim is in another language (de) than the passages"


def test_a_short_claim_is_in_the_language_of_the_answer() -> None:
    assert one("So etwa.", ENGLISH)[0] == "unsupported"
    verdict = judge_answer(Answer(text="So etwa. Jede Kopie läuft in einem getrennten Vorgang."), ENGLISH)
    assert [claim.grade for claim in verdict.claims] == ["unchecked", "unchecked"]
    assert (verdict.grade, verdict.score) == ("unchecked", 0.0)


def test_a_claim_in_the_language_of_one_of_its_passages_is_judged() -> None:
    german = passage(2, "Jede Kopie hat einen eigenen Vorgang.", language="de")
    assert one("Die Türen sind aus Eichenholz gemacht.", ENGLISH, german)[0] == "unsupported"


def test_a_claim_is_judged_if_the_language_of_a_passage_is_unknown() -> None:
    assert one("Jede Kopie läuft in einem getrennten Vorgang.", passage(1, "Ray Serve 2.9"))[0] == "unsupported"


def test_work_that_nobody_waits_for_ends_with_its_claim() -> None:
    from threading import Event

    entered, cancelled = Event(), Event()
    texts: list[str] = []

    class Waiting(ScriptedTokens):
        def token_vectors(self, batch: Sequence[str]) -> list[TokenVectors]:
            texts.extend(batch)
            entered.set()
            cancelled.wait(timeout=30)
            return super().token_vectors(batch)

    async def cancel_judging() -> None:
        judge = LexicalJudge(Thresholds(supported=0.6, partial=0.45), TokenSimilarity(Waiting()))
        judging = asyncio.create_task(judge.judge(Answer(text="Keys last. Doors last. Locks last."), (KEYS,)))
        await asyncio.to_thread(entered.wait, 30)
        judging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judging
        cancelled.set()

    asyncio.run(cancel_judging())  # joins the threads
    assert [text for text in texts if text.endswith("last.")] == ["Keys last."]
