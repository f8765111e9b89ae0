"""The report of a run: what its parts show for which values."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from finished_runs import answer, finished_run, question, waterfall

from rag_core.evaluation.comparison import ComparedMeasure, compare_values
from rag_core.evaluation.gate import Check, GateResult, Outcome
from rag_core.evaluation.report_page.base_comparison import BaseComparison
from rag_core.evaluation.report_page.charts import draw_bar, draw_interval
from rag_core.evaluation.report_page.history import PastRun
from rag_core.evaluation.report_page.page import ReportPage, build_page, render_html, render_markdown
from rag_core.evaluation.report_page.section import format_share
from rag_core.evaluation.report_page.sections import find_curves
from rag_core.evaluation.significance import Estimate
from rag_core.evaluation.worst_questions import find_loss, find_worst

ATTACK = "</style></script><script>alert(1)</script> ![x](http://example.org/x.png) | `"


def compare(outcome: Outcome, change: float = 0.0) -> BaseComparison:
    """A comparison with a base in which every question was worse by `change`."""
    values = np.full(20, 0.5)
    row = ComparedMeasure(
        dataset="seals",
        measure="ndcg@10",
        base=0.5,
        candidate=0.5 + change,
        comparison=compare_values(values + change, values),
        adjusted_p=0.001,
        coverage=1.0,
    )
    check = Check(kind="change", dataset="seals", measure="ndcg@10", outcome=outcome, value=change, reason="it fell")
    return BaseComparison(base="monday", rows=[row], gate=GateResult([check]))


def titles(page: ReportPage) -> list[str]:
    return [section.title for section in page.sections]


def cells(page: ReportPage, id: str, table: int = 0) -> Sequence[Sequence[str]]:
    return next(section for section in page.sections if section.id == id).tables[table].rows


def test_the_verdict_is_that_of_the_gate_with_the_checks_that_did_not_pass() -> None:
    verdict = build_page(finished_run(question(1)), compare("fail", -0.2)).verdict
    assert (verdict.state, verdict.reasons) == ("fail", ["seals, ndcg@10: fail, it fell"])


def test_a_run_that_cannot_be_compared_is_invalid() -> None:
    refused = BaseComparison(base="monday", refusal="the grades differ")
    verdict = build_page(finished_run(question(1)), refused).verdict
    assert (verdict.state, verdict.reasons) == ("invalid", ["the grades differ"])


def test_without_a_base_the_coverage_decides() -> None:
    questions = [question(number) for number in range(10)]
    assert build_page(finished_run(*questions)).verdict.state == "valid"
    failed = build_page(finished_run(*questions, failures=[{"question": "q1", "reason": "no store"}]))
    assert failed.verdict.state == "invalid"
    assert failed.verdict.reasons == ["ndcg@10, recall@10 cover 90 % of the questions; at least 95% are required"]
    assert failed.facts[1] == "coverage 90 %"


def test_a_share_is_100_percent_only_if_it_is_whole() -> None:
    assert [format_share(share) for share in (1, 0.99999, 0.95, 0)] == ["100 %", "99.9 %", "95 %", "0 %"]


def test_a_measure_shows_its_difference_from_the_base() -> None:
    page = build_page(finished_run(question(1)), compare("fail", -0.2))
    assert (page.figures[0].change, page.figures[0].trend) == ("-0.200", "worse")
    assert cells(page, "measures")[0][-4:] == ("-0.200", "-0.200 to -0.200", "0.0010 *", "0.000")


def test_the_bar_is_that_of_the_failure_waterfall_if_there_is_one() -> None:
    run = finished_run(question(1), question(2, rank=None), question(3, error="no store"), waterfall=waterfall("q2"))
    losses = build_page(run).losses
    assert losses is not None
    assert [(part.name, part.count, part.share) for part in losses.parts] == [
        ("good", 9, "81.8 %"),
        ("fusion_loss", 1, "9.1 %"),
        ("unmeasured", 1, "9.1 %"),
    ]


def test_an_answer_with_a_label_is_measured_even_if_its_search_ended_with_an_error() -> None:
    questions = [question(1, answer=answer()), question(2, answer=answer(0.0), error="no store")]
    losses = build_page(finished_run(*questions, waterfall=waterfall("q2"))).losses
    assert losses is not None
    assert [part.name for part in losses.parts] == ["good", "fusion_loss"]


def test_questions_that_ended_with_an_error_are_among_the_worst() -> None:
    errors = [question(number, rank=None, error="no store") for number in range(5)]
    run = finished_run(*errors, question(7, rank=None), waterfall=waterfall("q7", "q1"))
    assert [(worst.id, worst.label, worst.detail) for worst in find_worst(run)][2:] == [
        ("q2", "failed", "no store"),
        ("q7", "fusion_loss", "The document was first in the dense leg."),
    ]


def test_one_reason_is_for_all_measures_with_the_same_coverage() -> None:
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6}
    hits = {"measures": dict.fromkeys(["mrr", "map", "ndcg@10", "recall@10", "success@5"], estimate), "errors": 1}
    run = finished_run(question(1), stages={"final": hits}, failures=[{"question": "q1", "reason": "no store"}])
    assert build_page(run).verdict.reasons == [
        "mrr, map, ndcg@10 and 2 more measures cover 0 % of the questions; at least 95% are required"
    ]


def test_only_questions_that_failed_have_a_reason_if_there_is_a_waterfall() -> None:
    questions = [
        question(1, answer=answer(0.6)),
        question(2, rank=3, failure="fusion_loss"),
        question(3, error="no store"),
    ]
    assert [line.label for line in build_page(finished_run(*questions)).questions] == [
        "differs from the reference",
        "fusion_loss",
        "failed",
    ]
    page = build_page(finished_run(*questions, waterfall=waterfall("q2")))
    assert [line.label for line in page.questions] == ["", "fusion_loss", "failed"]


def test_the_judge_is_compared_with_the_rule_of_the_waterfall_for_right_answers() -> None:
    measures = {"judge_supported": 1.0, "contains_reference": 0.0}
    run = finished_run(
        question(1, answer=answer(measures={**measures, "token_f1": 0.2})),
        question(2, answer=answer(measures={**measures, "token_f1": 0.1})),
    )
    assert cells(build_page(run), "judge")[2:4] == [("supported, and right", "1"), ("supported, but wrong", "1")]


def test_without_a_waterfall_the_bar_counts_the_relevant_documents_that_are_lost() -> None:
    losses = build_page(finished_run(question(1))).losses
    assert losses is not None
    assert losses.title == "1 of 4 relevant documents are lost"
    assert [(part.name, part.count) for part in losses.parts] == [("good", 3), ("fuse", 1)]


def test_the_worst_questions_are_the_examples_of_the_waterfall() -> None:
    run = finished_run(question(1), question(2, rank=None, answer=answer(0.0)), waterfall=waterfall("q2", "gone"))
    (worst,) = find_worst(run)
    assert (worst.id, worst.label, worst.expected, worst.was_read) == ("q2", "fusion_loss", ("keeper",), False)
    assert (worst.reply, worst.ranks) == ("The keeper. [1]", {"dense": 1, "final": None})


def test_without_a_waterfall_the_worst_questions_have_the_lowest_scores() -> None:
    run = finished_run(question(1), question(2, rank=2), question(3, rank=None), question(4, error="no store"))
    assert [(worst.id, worst.label) for worst in find_worst(run)] == [
        ("q3", "lost at fuse"),
        ("q4", "failed"),
        ("q2", "low rank"),
    ]
    assert len(find_worst(finished_run(*(question(number, rank=None) for number in range(30))))) == 10


@pytest.mark.parametrize(
    ("finish", "answerable", "label"),
    [
        ("abstained", True, "refused"),
        ("stop", False, "answered an unanswerable question"),
        ("stop", True, "differs from the reference"),
    ],
)
def test_a_wrong_answer_has_a_reason(finish: str, answerable: bool, label: str) -> None:
    assert find_loss(question(1, answer=answer(0.0, finish=finish, answerable=answerable))) == label


def test_a_curve_is_the_share_of_questions_found_up_to_each_rank() -> None:
    curves = find_curves(finished_run(question(1), question(2, rank=3), question(3, rank=None), question(4), k=4))
    assert curves == {"dense": [1, 1, 1, 1], "final": [0.5, 0.5, 0.75, 0.75]}


def test_questions_are_measured_by_kind() -> None:
    page = build_page(finished_run(question(1), question(2, rank=None, text="When does the old seal dive again?")))
    by_word = {row[0]: row for row in cells(page, "strata")}
    assert by_word["who"][1:4] == ("1", "100 %", "1.000")
    assert by_word["when"][1:4] == ("1", "100 %", "0.000")


def test_follow_ups_are_a_kind_if_the_rules_were_applied() -> None:
    follow_up, other = (replace(question(n), turn=2, follow_up=n == 1) for n in (1, 2))
    rows = cells(build_page(finished_run(follow_up, other, question(3))), "strata")
    assert [row[:2] for row in rows] == [("follow-up", "1"), ("no follow-up", "1")]


def test_a_section_without_data_is_left_out() -> None:
    bare = finished_run(question(1, timings={}, seconds=None))
    assert titles(build_page(bare)) == ["Measures", "Stages of the search", "How to measure this again"]


def test_answers_add_their_sections_with_the_coverage_of_their_measures() -> None:
    measure = {"mean": None, "low": None, "high": None, "coverage": 0.5, "questions": 2}
    replies = {"answerable": {"answer": 1, "failed": 1}}
    failed = answer(measures={}, failures={"judge_score": "no JSON"}, error="no model")
    run = finished_run(
        question(1, answer=answer()),
        question(2, answer=failed),
        answers={"measures": {"judge_score": measure}, "replies": replies},
    )
    page = build_page(run)
    assert cells(page, "measures")[-1] == ("judge_score", "2", "50 %", "", "")
    assert cells(page, "answers") == [("answerable", "1", "0", "0", "1")]
    assert cells(page, "judge", 1) == [("judge_score", "1", "no JSON")]
    assert [row[0] for row in cells(page, "latency")] == ["dense", "whole search", "whole answer"]


def test_the_history_ends_with_this_run() -> None:
    past = [
        PastRun(name="a", when="2026-01-01T00:00:00+00:00", value=0.5, is_promoted=True),
        PastRun(name="b", when="2026-01-02T00:00:00+00:00", value=0.6),
    ]
    assert cells(build_page(finished_run(question(1)), past=past), "history")[-1] == (
        "2026-01-02 00:00 UTC",
        "b",
        "0.600",
        "",
    )
    assert "History" not in titles(build_page(finished_run(question(1)), past=past[:1]))


def test_html_shows_markup_in_questions_and_answers_as_text() -> None:
    run = finished_run(question(1, rank=None, text=ATTACK, answer=answer(0.0, text=ATTACK)), dataset=ATTACK)
    html = render_html(build_page(run))
    assert "<script>alert" not in html
    assert html.count("</style>") == html.count("</script>") == 1
    assert "&lt;script&gt;alert(1)" in html


def test_markdown_shows_markup_in_questions_and_answers_as_text() -> None:
    markdown = render_markdown(build_page(finished_run(question(1, rank=None, text=ATTACK))))
    assert "<script>" not in markdown.replace("\\<", "")
    assert r"\!\[x\](http://example.org/x.png) \| \`" in markdown


def test_markdown_has_the_verdict_and_all_sections() -> None:
    page = build_page(finished_run(question(1)), compare("pass"))
    markdown = render_markdown(page)
    assert markdown.startswith("# PASS: seals with default\n")
    assert [line[3:] for line in markdown.splitlines() if line.startswith("## ")][2:] == titles(page)


def test_2000_questions_fit_into_one_megabyte() -> None:
    long = [question(number, rank=None, text="a long question " * 40) for number in range(2000)]
    assert len(render_html(build_page(finished_run(*long))).encode()) < 1_000_000


def test_the_parts_of_a_bar_are_as_wide_as_their_counts() -> None:
    bar = draw_bar([("good", 3, "good"), ("lost <&", 1, "c0")], "losses")
    assert 'class="good" x="0.0" y="0" width="748.0"' in bar
    assert 'class="c0" x="750.0" y="0" width="248.0"' in bar
    assert "<title>lost &lt;&amp;: 1</title>" in bar


def test_an_interval_is_drawn_within_its_axis() -> None:
    plot = draw_interval(Estimate(0.5, -1.0, 2.0), 0, 1, "a mean")
    assert 'x1="0.0" x2="160.0"' in plot
    assert 'cx="80.0"' in plot
