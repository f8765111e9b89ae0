"""How far the judge can be trusted."""

from collections import Counter
from collections.abc import Sequence

from rag_core.evaluation.feedback import cohen_kappa
from rag_core.evaluation.finished_run import FinishedRun
from rag_core.evaluation.outcomes import MIN_TOKEN_F1, is_right_answer
from rag_core.evaluation.report_page.section import Section, Table, join_values

MAX_REASONS = 5


def build_judge(run: FinishedRun) -> Section | None:
    """The judge's coverage, its agreement with the references, and the reasons for grades that are missing."""
    failures = Counter(
        (name, reason)
        for question in run.answered
        if question.answer
        for name, reason in question.answer.failures.items()
    )
    facts = [("judge", join_values(run.report.get("judge") or {}))]
    grades = [
        (question.answer.measures["judge_supported"] >= 0.5, is_right_answer(question.answer.measures))
        for question in run.answered
        if question.answer and {"judge_supported", "contains_reference", "token_f1"} <= question.answer.measures.keys()
    ]
    if not grades and not failures:
        return None
    if grades:
        facts += [("graded answers with references", str(len(grades))), *_agreement_facts(grades)]
    tables = [Table(caption="judge", columns=("fact", "value"), rows=facts)]
    if failures:
        rows = [(name, str(count), reason) for (name, reason), count in failures.most_common(MAX_REASONS)]
        tables.append(Table(caption="not measured", columns=("measure", "answers", "reason"), rows=rows))
    note = (
        f"An answer is right if it contains a reference, or if its token F1 is at least {MIN_TOKEN_F1}."
        if grades
        else ""
    )
    return Section(id="judge", title="Judge", note=note, tables=tables)


def _agreement_facts(grades: Sequence[tuple[bool, bool]]) -> list[tuple[str, str]]:
    kappa = cohen_kappa([(str(supported), str(is_right)) for supported, is_right in grades])
    both = sum(supported and is_right for supported, is_right in grades)
    return [
        ("supported, and right", str(both)),
        (
            "supported, but wrong",
            str(sum(supported and not is_right for supported, is_right in grades)),
        ),
        (
            "not supported, but right",
            str(sum(is_right and not supported for supported, is_right in grades)),
        ),
        ("Cohen's kappa of being supported and being right", "undefined" if kappa is None else f"{kappa:.2f}"),
    ]
