"""The figures of scripted conversations: answers with and without history, expectations, and mixed-up sessions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rag_core.evaluation.answers import share_estimate
from rag_core.evaluation.comparison import Comparison, compare_values
from rag_core.evaluation.foreign_words import find_foreign_words
from rag_core.evaluation.scripted_conversations import EXPECTATIONS, ScriptedTurn
from rag_core.evaluation.scripted_replies import (
    MeasuredTurn,
    ScriptedReply,
    cites_expected,
    has_facts,
    is_met,
    is_repetition,
    name_failure,
)
from rag_core.evaluation.significance import Estimate, Floats

MEASURES = {"right_document": cites_expected, "facts": has_facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShares:
    """The shares of right answers among some turns, by measure: in the conversation, and to each question alone.

    `comparison` is that of the two shares of right documents.
    """

    turns: int
    measures: Mapping[str, Estimate]
    alone: Mapping[str, Estimate]
    comparison: Comparison

    @property
    def ratio(self) -> float | None:
        """The right documents with history over those without; None if there are none without."""
        alone = self.alone["right_document"].mean
        return self.measures["right_document"].mean / alone if alone else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFigures:
    """The figures of all conversations.

    `groups` and `positions` hold shares of the turns that expect an answer: by the role of the question, and by its
    position. `met` has, by expectation, the turns that met it and all that have it. `repetitions` are the turns that
    expect an answer and were only given an earlier one again. `foreign` holds the words that were searched although
    only other conversations have them, by conversation and position.
    """

    turns: Sequence[MeasuredTurn]
    groups: Mapping[str, AnswerShares]
    positions: Mapping[int, AnswerShares]
    met: Mapping[str, tuple[int, int]]
    repetitions: Sequence[MeasuredTurn]
    foreign: Mapping[tuple[str, int], Sequence[str]]

    @property
    def errors(self) -> list[MeasuredTurn]:
        return [turn for turn in self.turns if turn.reply.error]

    @property
    def failures(self) -> Counter[str]:
        """The number of turns without a right answer that expect one, by reason."""
        return Counter(filter(None, map(name_failure, _select_answers(self.turns))))


def measure_scripts(turns: Sequence[MeasuredTurn]) -> ScriptFigures:
    """Measures the turns, those of a conversation in their order."""
    conversations = defaultdict[str, list[MeasuredTurn]](list)
    for turn in turns:
        conversations[turn.conversation].append(turn)
    answers = _select_answers(turns)
    with_earlier = [(turn, conversations[turn.conversation][: turn.position - 1]) for turn in turns]
    met = [turn.turn.expect for turn, earlier in with_earlier if is_met(turn, earlier)]
    expected = [turn.turn.expect for turn in turns]
    return ScriptFigures(
        turns=turns,
        groups=_share_by(answers, _name_group),
        positions=_share_by(answers, lambda turn: turn.position),
        met={name: (met.count(name), expected.count(name)) for name in EXPECTATIONS if name in expected},
        repetitions=[
            turn for turn, earlier in with_earlier if turn.turn.expect == "answer" and is_repetition(turn, earlier)
        ],
        foreign=find_foreign_words(conversations),
    )


def figures_to_json(figures: ScriptFigures) -> dict[str, Any]:
    return {
        "conversations": len({turn.conversation for turn in figures.turns}),
        "turns": len(figures.turns),
        "groups": {name: _shares_to_json(shares) for name, shares in figures.groups.items()},
        "positions": {str(position): _shares_to_json(shares) for position, shares in figures.positions.items()},
        "expectations": {name: {"turns": total, "met": met} for name, (met, total) in figures.met.items()},
        "failures": dict(figures.failures.most_common()),
        "repetitions": [f"{turn.conversation}/{turn.position}" for turn in figures.repetitions],
        "foreign_words": {f"{id}/{position}": words for (id, position), words in figures.foreign.items()},
        "errors": [
            {"turn": f"{turn.conversation}/{turn.position}", "reason": turn.reply.error} for turn in figures.errors
        ],
    }


def _select_answers(turns: Sequence[MeasuredTurn]) -> list[MeasuredTurn]:
    return [turn for turn in turns if turn.turn.expect == "answer"]


def _name_group(turn: MeasuredTurn) -> str:
    if turn.turn.is_follow_up:
        return "follow-ups"
    return "first turns" if turn.position == 1 else "later questions"


def _share_by(turns: Sequence[MeasuredTurn], key: Callable[[MeasuredTurn], Any]) -> dict[Any, AnswerShares]:
    groups = defaultdict[Any, list[MeasuredTurn]](list)
    for turn in turns:
        groups[key(turn)].append(turn)
    return {name: _measure_shares(groups[name]) for name in sorted(groups)}


def _measure_shares(turns: Sequence[MeasuredTurn]) -> AnswerShares:
    values = _measure_replies((turn.turn, turn.reply) for turn in turns)
    alone = _measure_replies((turn.turn, turn.alone or turn.reply) for turn in turns)
    return AnswerShares(
        turns=len(turns),
        measures={name: share_estimate(int(column.sum()), len(turns)) for name, column in values.items()},
        alone={name: share_estimate(int(column.sum()), len(turns)) for name, column in alone.items()},
        comparison=compare_values(values["right_document"], alone["right_document"]),
    )


def _measure_replies(replies: Iterable[tuple[ScriptedTurn, ScriptedReply]]) -> dict[str, Floats]:
    """Returns 1 for each reply that has the measure, and 0 for the others; by measure."""
    listed = list(replies)
    return {name: np.array([float(measure(*reply)) for reply in listed]) for name, measure in MEASURES.items()}


def _shares_to_json(shares: AnswerShares) -> dict[str, Any]:
    return {
        "turns": shares.turns,
        **{name: asdict(estimate) for name, estimate in shares.measures.items()},
        **{f"{name}_alone": asdict(estimate) for name, estimate in shares.alone.items()},
        "ratio": shares.ratio,
        "comparison": asdict(shares.comparison),
    }
