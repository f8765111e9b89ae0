from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from rag_core.evaluation.question import Question
from rag_core.evaluation.report import build_evaluation, compare_run, count_answered, to_json
from rag_core.evaluation.spans import Span, answer_characters
from rag_core.evaluation.stages import (
    BELOW_TOP,
    JudgedQuestion,
    Trace,
    count_losses,
    fill_variants,
    judge_question,
    summarize_stages,
    trec_run,
    with_chunk_measures,
)
from rag_core.types import StageReport

DOCUMENTS = {UUID(int=n): f"d{n // 2}" for n in range(60)}
"""Chunks 2n and 2n + 1 are of document n."""
PLACES = {id: Span(document=f"d{id.int // 2}", start=id.int % 2 * 100, end=id.int % 2 * 100 + 100) for id in DOCUMENTS}
EVERY = frozenset(DOCUMENTS.values())


def chunks(*numbers: int) -> tuple[UUID, ...]:
    return tuple(UUID(int=n) for n in numbers)


def report(stage: str, *ranking: int, seconds: float = 0.0, error: str = "") -> StageReport:
    return StageReport(stage=stage, seconds=seconds, error=error, ranking=chunks(*ranking))


def one(
    grades: Mapping[str, int],
    stages: Sequence[StageReport],
    final: Sequence[int],
    stored: frozenset[str] = EVERY,
    id: str = "q",
    seconds: float = 0.0,
) -> JudgedQuestion:
    trace = Trace(question=id, ranking=chunks(*final), stages=tuple(stages), seconds=seconds)
    return judge_question(Question(id=id, text="?", grades=grades), trace, DOCUMENTS, stored)


def test_a_document_has_the_rank_of_its_best_chunk() -> None:
    question = one({"d1": 1}, [report("dense", 4, 3, 5, 2)], [3, 2, 4])
    assert (question.legs, question.later_stages) == ({"dense": ["d2", "d1"]}, {"final": ["d1", "d2"]})
    assert (question.measures["dense"]["mrr"], question.measures["final"]["mrr"]) == (0.5, 1.0)


def test_the_union_is_what_the_legs_found_in_the_best_order() -> None:
    stages = [report("bm25", 0, 2), report("dense", 6, 0), report("fuse", 0, 6, 2), report("fetch")]
    question = one({"d1": 1, "d3": 3}, stages, [0, 6])
    assert list(question.measures) == ["bm25", "dense", "union", "fuse", "final"]
    assert question.rankings["union"] == ["d3", "d1", "d0"]
    assert question.measures["union"]["ndcg@10"] == 1.0


def test_one_leg_alone_has_no_union() -> None:
    summaries = summarize_stages([one({"d1": 1}, [report("dense", 2)], [2])])
    assert [summary.stage for summary in summaries] == ["dense", "final"]


def test_the_union_has_the_hits_of_one_leg_if_the_other_was_down() -> None:
    well = one({"d1": 1}, [report("dense", 0), report("bm25", 2), report("fuse", 2, 0)], [2])
    late = [report("dense", 0, 2), report("bm25", error="late"), report("fuse", 0, 2)]
    ill = one({"d1": 1}, late, [2], id="r")
    by_stage = {summary.stage: summary for summary in summarize_stages([well, ill])}
    assert by_stage["union"].measures["success@1"].mean == 1.0


def test_without_recorded_rankings_the_hits_are_judged() -> None:
    question = one({"d1": 1, "d9": 1}, [report("dense"), report("fetch")], [2])
    assert list(question.rankings) == ["final"]
    assert question.lost_at == {"d1": "", "d9": "final"}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("d29", "store"),
        ("d20", "legs"),
        ("d3", "fuse"),
        ("d4", "rerank"),
        ("d5", "final"),
        ("d16", BELOW_TOP),
        ("d0", ""),
    ],
)
def test_a_document_is_lost_at_the_first_stage_that_lacks_it(document: str, place: str) -> None:
    far = range(0, 34, 2)  # d0 to d16
    fused = [n for n in far if n != 6]
    reranked = [n for n in fused if n != 8]
    stages = [report("dense", *far), report("bm25", *far), report("fuse", *fused), report("rerank", *reranked)]
    question = one({document: 1}, stages, [n for n in reranked if n != 10], EVERY - {"d29"})
    assert question.lost_at == {document: place}


def test_if_nothing_was_found_the_legs_lost_the_document() -> None:
    assert one({"d1": 1}, [report("bm25"), report("fetch")], []).lost_at == {"d1": "legs"}
    stages = [report("bm25"), report("dense"), report("fuse"), report("fetch")]
    assert one({"d1": 1}, stages, []).lost_at == {"d1": "legs"}


def test_losses_of_a_failed_question_are_counted_separately() -> None:
    trace = Trace(question="bad", seconds=1.0, error="StoreError: away")
    question = Question(id="bad", text="?", grades={"d1": 1, "d2": 1, "gone": 1})
    failed = judge_question(question, trace, DOCUMENTS, EVERY)
    assert failed.lost_at == {"d1": "failed", "d2": "failed", "gone": "store"}
    lost = to_json(build_evaluation([failed, one({"d1": 1}, [report("dense", 2)], [2])]))["lost"]
    assert {place: count for place, count in lost.items() if count} == {"found": 1, "store": 1, "failed": 2}


def test_a_leg_that_is_down_counts_as_zero_and_its_error_is_counted() -> None:
    well = one({"d1": 1}, [report("dense", 2, seconds=0.1), report("bm25", 2, seconds=0.2)], [2], seconds=0.4)
    down = report("bm25", seconds=0.6, error="timeout after 0.600 s")
    ill = one({"d1": 1}, [report("dense", 2, seconds=0.3), down], [2], id="r", seconds=0.8)
    by_stage = {summary.stage: summary for summary in summarize_stages([well, ill])}
    assert by_stage["bm25"].measures["recall@10"].mean == 0.5
    assert by_stage["dense"].measures["recall@10"].mean == 1.0
    assert (by_stage["bm25"].errors, by_stage["dense"].errors) == (1, 0)
    assert by_stage["dense"].latency is not None
    assert by_stage["dense"].latency.p50 == pytest.approx(0.2)
    assert by_stage["final"].latency is not None
    assert by_stage["final"].latency.p95 == pytest.approx(0.78)
    assert by_stage["final"].latency.p99 == pytest.approx(0.796)
    assert by_stage["final"].latency.mean == pytest.approx(0.6)


def test_stages_are_reported_in_the_order_of_the_flow() -> None:
    names = ("dense", "bm25", "fuse", "fetch", "rerank")
    stages = [report(name, 2) for name in names]
    within = [
        StageReport(stage="embed", seconds=0.1, parent="dense"),
        StageReport(stage="x", seconds=0.1, parent="fuse"),
    ]
    summaries = summarize_stages([one({"d1": 1}, stages, [2], id="less"), one({"d1": 1}, [*within, *stages], [2])])
    expected = ["bm25", "dense: embed", "dense", "union", "fuse: x", "fuse", "fetch", "rerank", "final"]
    assert [summary.stage for summary in summaries] == expected
    assert [summary.stage for summary in summaries if not summary.measures] == ["dense: embed", "fuse: x", "fetch"]


def test_a_reranker_that_fails_passes_on_what_it_was_given() -> None:
    stages = [report("dense", 2, 0), report("bm25", 0), report("fuse", 2, 0), report("rerank", error="late")]
    question = one({"d1": 1}, stages, [2, 0])
    assert question.rankings["rerank"] == ["d1", "d0"]
    assert question.lost_at == {"d1": ""}


def test_a_leg_that_is_asked_again_adds_to_its_ranking() -> None:
    stages = [report("dense", 0), report("fuse", 0), report("dense", 2), report("fuse", 2)]
    question = one({"d1": 1}, stages, [2])
    assert (list(question.legs), question.legs["dense"], question.later_stages["fuse"]) == (
        ["dense"],
        ["d0", "d1"],
        ["d0", "d1"],
    )


def test_losses_are_counted_over_all_questions() -> None:
    questions = [one({"d1": 1, "d9": 1, "d8": 0}, [report("dense", 2)], [2]), one({"d7": 1}, [report("dense", 2)], [2])]
    counted = count_losses(questions)
    assert (counted[""], counted["legs"], sum(counted.values())) == (1, 2, 3)


def test_a_failed_question_counts_as_zero_and_is_named() -> None:
    well = one({"d1": 1}, [report("dense", 2)], [2])
    trace = Trace(question="bad", seconds=1.0, error="StoreError: away")
    failed = judge_question(Question(id="bad", text="?", grades={"d1": 1}), trace, DOCUMENTS, EVERY)
    evaluation = to_json(build_evaluation([well, failed]))
    assert evaluation["stages"]["final"]["measures"]["success@1"]["mean"] == 0.5
    assert evaluation["failures"] == [{"question": "bad", "reason": "StoreError: away"}]


def test_headroom_is_what_a_perfect_order_of_the_union_would_add() -> None:
    stages = [report("dense", 0, 2), report("bm25", 0), report("fuse", 0, 2)]
    evaluation = to_json(build_evaluation([one({"d1": 1}, stages, [0, 2])]))
    assert evaluation["headroom"] == pytest.approx(1 - 1 / 1.584962500721156)
    assert to_json(build_evaluation([one({"d1": 1}, stages[:1], [0, 2])]))["headroom"] is None


def test_each_stage_is_compared_with_what_it_was_given() -> None:
    """Fusion with the better leg, over the same questions."""
    stages = [report("bm25", 0), report("dense", 0, 2), report("fuse", 2, 0), report("rerank", 0, 2)]
    improvements = to_json(build_evaluation([one({"d1": 1}, stages, [0, 2])]))["improvements"]
    second = 1 / 1.584962500721156
    assert [
        (improvement["stage"], improvement["over"], improvement["comparison"]["difference"]["mean"])
        for improvement in improvements
    ] == [
        ("fuse", "dense", pytest.approx(1 - second)),
        ("rerank", "fuse", pytest.approx(second - 1)),
    ]
    alone = to_json(build_evaluation([one({"d1": 1}, [report("dense", 2)], [2])]))
    assert alone["improvements"] == []


VARIANTS = [
    report("variant previous", 8, 6),
    report("dense", 2, 0),
    report("bm25", 0),
    report("fuse", 0, 2),
    report("variant answer", 6),
    report("variants", 8, 0, 2),
]
"""The stages of a search in which one variant ended before the question's own stages, and another after them."""


def test_variants_are_legs_of_their_fusion_whenever_they_end() -> None:
    judged = one({"d1": 1}, VARIANTS, [8, 0, 2])
    assert list(judged.legs) == ["bm25", "dense", "variant answer", "variant previous"]
    assert list(judged.later_stages) == ["fuse", "variants", "final"]
    steps = build_evaluation([judged]).improvements
    assert [(step.stage, step.over) for step in steps] == [("fuse", "dense"), ("variants", "fuse")]


def test_a_document_that_only_a_variant_found_is_not_lost_in_the_question_s_own_fusion() -> None:
    assert one({"d4": 1, "d3": 1, "d0": 1, "d9": 1}, VARIANTS, [8, 0, 2]).lost_at == {
        "d4": "",
        "d3": "variants",
        "d0": "",
        "d9": "legs",
    }


def test_variants_of_a_search_with_one_leg_are_fused_after_it() -> None:
    for stages in ([report("variant first", 4), report("dense", 2)], [report("dense", 2), report("variant first", 4)]):
        judged = one({"d1": 1}, [*stages, report("variants", 2, 4)], [2, 4])
        assert (list(judged.legs), list(judged.later_stages)) == (["dense", "variant first"], ["variants", "final"])


def test_a_variant_is_measured_over_the_questions_that_have_it() -> None:
    alone = one({"d1": 1}, [report("dense", 2), report("bm25", 0), report("fuse", 2, 0)], [2, 0], id="first")
    summaries = {
        summary.stage: summary for summary in summarize_stages(fill_variants([alone, one({"d3": 1}, VARIANTS, [6])]))
    }
    assert summaries["variant answer"].measures["success@1"].mean == 1.0
    assert summaries["dense"].measures["success@1"].mean == 0.5


def test_a_question_without_variants_passes_through_their_fusion() -> None:
    alone = one({"d1": 1}, [report("dense", 2), report("bm25", 0), report("fuse", 2, 0)], [2, 0], id="first")
    filled = fill_variants([alone, one({"d1": 1}, VARIANTS, [8, 0, 2])])
    assert list(filled[0].later_stages) == ["fuse", "variants", "final"]
    assert filled[0].measures["variants"] == alone.measures["fuse"]
    assert fill_variants([alone]) == [alone]


def test_a_trec_run_keeps_the_order_of_the_stage() -> None:
    question = one({"d1": 1}, [report("dense", 4, 3, 5)], [3])
    assert trec_run([question], "dense") == {"q": {"d2": 1.0, "d1": 0.5}}
    assert trec_run([question], "bm25") == {}


def test_another_run_is_compared_question_by_question() -> None:
    questions = [one({"d1": 1}, [], [2], id=str(n)) for n in range(8)]
    other = {str(n): {"d1": 1.0} for n in range(2)} | {"2": {"d0": 2.0, "d1": 1.0}}
    comparison = compare_run(questions, other)
    assert (comparison.better, comparison.worse, comparison.equal) == (6, 0, 2)
    assert comparison.difference.mean == pytest.approx((5 + 1 - 1 / 1.584962500721156) / 8)
    assert comparison.p == 2 / 2**6


def test_a_run_answers_the_questions_whose_ids_it_has() -> None:
    questions = [Question(id=id, text="?", grades={}) for id in ("q 1", "q 2", "q 3")]
    assert count_answered(questions, {"q%201": {}, "q 2": {}, "q%203": {"d1": 1.0}, "other": {}}) == 2


def test_the_chunks_of_each_stage_are_measured_by_the_answer() -> None:
    stages = [report("dense", 2, 0, 3), report("bm25", 4, 5), report("fuse", 2, 3, 4)]
    wanted = answer_characters([Span(document="d1", start=90, end=120)], PLACES)
    question = with_chunk_measures(one({"d1": 1}, stages, [2, 3]), wanted, PLACES)
    assert list(question.chunk_measures) == ["bm25", "dense", "union", "fuse", "final"]
    assert question.chunks["union"][:2] == list(chunks(3, 2))
    by_stage = {stage: measures["char_recall@1"] for stage, measures in question.chunk_measures.items()}
    assert by_stage == {"bm25": 0, "dense": 10 / 30, "union": 20 / 30, "fuse": 10 / 30, "final": 10 / 30}
    assert (question.chunk_measures["dense"]["recall@5"], question.chunk_measures["dense"]["ndcg@1"]) == (1.0, 1.0)


def test_questions_without_spans_count_for_documents_only() -> None:
    wanted = answer_characters([Span(document="d1", start=0, end=10)], PLACES)
    marked = with_chunk_measures(one({"d1": 1}, [report("dense", 2)], [2]), wanted, PLACES)
    unmarked = one({"d1": 1}, [report("dense", 4)], [4], id="r")
    down = with_chunk_measures(one({"d1": 1}, [report("dense", error="late")], [], id="s"), wanted, PLACES)
    evaluation = to_json(build_evaluation([unmarked, marked, down]))
    assert (evaluation["questions"], evaluation["questions_with_spans"], evaluation["answers_in_no_chunk"]) == (3, 2, 0)
    assert evaluation["stages"]["dense"]["measures"]["recall@5"]["mean"] == pytest.approx(1 / 3)
    assert evaluation["stages"]["dense"]["chunk_measures"]["recall@5"]["mean"] == 0.5
    assert to_json(build_evaluation([unmarked]))["stages"]["dense"]["chunk_measures"] == {}
