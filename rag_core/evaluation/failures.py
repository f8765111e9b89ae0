"""The label of a failed question: the first step that lost its answer.

    not_indexed        no relevant document is stored
    span_lost          no chunk contains the whole answer
    rewrite_error      the user's own question finds it, the text that was searched instead does not
    pool_miss          no leg ranks it high enough
    fusion_loss        the fusion ranks it too low for the next step, or for the first 10 hits
    rerank_loss        the same, for a step after the fusion
    budget_cut         it is among the first 10 hits, but not in the prompt
    unused_context     the answer is wrong, and the judge does not find it unsupported
    unsupported_claim  the judge finds the answer unsupported
    wrong_citation     no citation is of a relevant document, although the prompt has a relevant passage
    over_abstain       a question that the documents answer was refused
    under_abstain      a question that they do not answer was not refused
    judge_error        only the judge failed, or contradicts the measures

The first seven apply if the answer is not right and nothing relevant reached the prompt, or the first hits. `outcomes`
defines what a failure is.
"""

from dataclasses import dataclass

from rag_core.evaluation.gold_search import GoldSearch, Part
from rag_core.evaluation.outcomes import Outcome

LABELS = (
    "not_indexed",
    "span_lost",
    "rewrite_error",
    "pool_miss",
    "fusion_loss",
    "rerank_loss",
    "budget_cut",
    "unused_context",
    "unsupported_claim",
    "wrong_citation",
    "over_abstain",
    "under_abstain",
    "judge_error",
)

_STORAGE_STEPS = frozenset({"never_stored", "other_collection", "deleted", "ingestion"})
_POOL_STEPS = frozenset({"leg", "depth", "filter"})
_PART_LABELS: dict[Part, str] = {"pool": "pool_miss", "fusion": "fusion_loss", "rerank": "rerank_loss"}


@dataclass(frozen=True, slots=True)
class Failure:
    """`detail` is one plain sentence."""

    label: str
    detail: str


def label_failure(outcome: Outcome, search: GoldSearch | None) -> Failure:
    """The label of an outcome that is a failure; `search` is None if no relevant document is stored."""
    if outcome.reached is False and outcome.is_right is not True:
        return _label_search(search, was_answered=outcome.answer is not None)
    return _label_answer(outcome)


def _label_search(search: GoldSearch | None, was_answered: bool) -> Failure:
    if search is None:
        return Failure("not_indexed", "no relevant document is stored")
    step, reason = search.loss.step, search.loss.reason
    if step in _STORAGE_STEPS:
        return Failure("not_indexed", reason)
    if step == "span":
        return Failure("span_lost", reason)
    if search.raw_rank:
        detail = f"the user's own question finds it at rank {search.raw_rank}; for the text that was searched, {reason}"
        return Failure("rewrite_error", detail)
    if step in _POOL_STEPS:
        return Failure("pool_miss", reason)
    if step == "found" and was_answered:
        return Failure("budget_cut", f"{reason}, but its answer is in no passage of the prompt")
    return Failure(_PART_LABELS[search.part], reason)


def _label_answer(outcome: Outcome) -> Failure:
    if outcome.is_right is False and not outcome.is_unsupported:
        prompt = "a relevant passage was in the prompt, but " if outcome.reached else ""
        f1 = outcome.measures["token_f1"]
        return Failure("unused_context", f"{prompt}the answer contains no reference; its token F1 is {f1:.2f}")
    if outcome.is_unsupported:
        share = outcome.measures["lexical_support"]
        detail = f"the judge finds the answer unsupported; {share:.0%} of its words are in the passages"
        return Failure("unsupported_claim", detail)
    if outcome.is_miscited:
        return Failure("wrong_citation", "a relevant passage was in the prompt, but no citation is of its document")
    if outcome.is_missing:
        return Failure("over_abstain", "the documents answer the question, but it was refused")
    if outcome.is_superfluous:
        return Failure("under_abstain", "the documents do not answer the question, but it was answered")
    if outcome.judge_failure:
        return Failure("judge_error", f"the judge failed: {outcome.judge_failure}")
    return Failure("judge_error", "the judge finds a right answer unsupported, although its words are in the passages")
