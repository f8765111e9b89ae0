"""What every judge promises."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_models
from fakes.answering import ScriptedJudge, passage
from fakes.judging import ScriptedClient

from rag_core.answering.citing.citations import cite
from rag_core.answering.judging.llm import LlmJudge
from rag_core.answering.judging.verbatim import VerbatimJudge
from rag_core.answering.judging.verdicts import Thresholds
from rag_core.config import BertEmbedder, CrossEncoderJudge, HashingEmbedder, LexicalJudge
from rag_core.events import grade_citations
from rag_core.protocols import Judge
from rag_core.types import Answer, Verdict
from rag_core.wiring.judging import build_local_judge

PASSAGES = [
    passage(1, "Rotate the keys weekly. The doors of the house are of oak. 東京 🎉"),
    passage(2, "the " * 600 + "keys turn by night", start=100),
]
TEXT = "# Keys\n\nRotate the keys weekly [1]. The doors are of glass [1][2], and two keys turn. All of it by night."
HASHING = HashingEmbedder(type="hashing")


JUDGES = ["lexical", "words alone", "cross_encoder", "classes", "llm", "verbatim", "scripted"]


@pytest.fixture(scope="module", params=JUDGES)
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return build_judge(request.param, tmp_path_factory.mktemp("judge"))


def build_judge(name: str, folder: Path) -> Judge:
    match name:
        case "lexical":
            return build_local_judge(LexicalJudge(type="lexical"), BertEmbedder(type="bert", model="all-MiniLM-L6-v2"))
        case "words alone":
            return build_local_judge(LexicalJudge(type="lexical"), HASHING)
        case "llm":
            return LlmJudge(ScriptedClient(), Thresholds(supported=0.7, partial=0.4), 2)
        case "verbatim":
            return VerbatimJudge()
        case "scripted":
            return ScriptedJudge(words={"glass": "unsupported", "turn": "partial"})
    names = ("entailment", "neutral") if name == "classes" else ()
    model = tiny_models.bert_files(folder, "ForSequenceClassification", names=names)
    return build_local_judge(CrossEncoderJudge(type="cross_encoder", model=str(model), batch_size=2), HASHING)


def judge_answer(judge: Judge, answer: Answer) -> Verdict:
    return asyncio.run(judge.judge(answer, PASSAGES))


def cite_text(text: str = TEXT) -> Answer:
    return cite(text, PASSAGES, "default")


def test_claims_lie_in_the_answer_in_order_and_scores_are_from_0_to_1(judge: Judge) -> None:
    answer = cite_text()
    verdict = judge_answer(judge, answer)
    assert verdict.method
    assert [claim.start for claim in verdict.claims] == sorted(claim.start for claim in verdict.claims)
    for claim in verdict.claims:
        assert 0 <= claim.start < claim.end <= len(answer.text)
        assert 0 <= claim.score <= 1
        assert claim.grade in ("supported", "partial", "unsupported")
    assert 0 <= verdict.score <= 1
    assert verdict.grade != "unchecked"


def test_every_citation_gets_the_grade_of_its_claim(judge: Judge) -> None:
    answer = cite_text()
    assert answer.citations
    verdict = judge_answer(judge, answer)
    assert {citation.claim for citation in answer.citations} <= {(claim.start, claim.end) for claim in verdict.claims}
    assert all(
        citation.grade != "unchecked" for citation in grade_citations(replace(answer, verdict=verdict)).citations
    )


def test_an_answer_without_a_claim_is_unchecked(judge: Judge) -> None:
    for text in ("", " \n ", "# Keys"):
        assert (verdict := judge_answer(judge, Answer(text=text))).grade == "unchecked", text
        assert verdict.claims == ()


def test_an_answer_is_judged_equally_twice_and_among_others(judge: Judge) -> None:
    answers = [cite_text(), Answer(text="Two keys turn."), cite_text("The doors are of oak [1].")]

    async def judge_together() -> list[Verdict]:
        return await asyncio.gather(*(judge.judge(answer, PASSAGES) for answer in answers * 3))

    alone = [judge_answer(judge, answer) for answer in answers]
    for verdict, expected in zip(asyncio.run(judge_together()), alone * 3, strict=True):
        assert [claim.grade for claim in verdict.claims] == [claim.grade for claim in expected.claims]
        assert verdict.score == pytest.approx(expected.score, abs=1e-4)
