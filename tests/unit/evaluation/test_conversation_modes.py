"""The ways to search and to answer a question with a history, with a scripted knowledge base."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobs.question_answers import AnswerTask
from jobs.retrieval_traces import TraceTask
from rag_core.evaluation.conversation_mode import ConversationMode, list_gold_variants
from rag_core.evaluation.question import Question
from rag_core.models.chat import Completion
from rag_core.retrieval.query.rewrite import LlmUnderstander
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.types import Answer, Message, Query, Reply

HISTORY = (Message(role="user", text="Where are the keys?"),)
QUESTION = Question(id="q1", text="Who has them?", grades={"d1": 1}, history=HISTORY, rewrite="Who has the keys?")
SETTINGS = load_settings(environment={})


@dataclass
class ScriptedKnowledge:
    """Records each search and each question that is asked. Its rewrites are upper case."""

    calls: list[tuple[str, Any, list[str]]] = field(default_factory=list)

    def explain(self, question: str, *, k: int, collection: str, history: Any = (), variants: Any = ()) -> Any:  # noqa: ARG002
        self.calls.append((question, history, [variant.text for variant in variants]))
        return [], []

    def rewrite(self, question: str, history: Any, collection: str) -> str:  # noqa: ARG002
        return question.upper()

    def ask(self, question: str, collection: str, filters: Any, history: Any = ()) -> Reply:  # noqa: ARG002
        self.calls.append((question, history, []))
        return Reply(query=Query(text=question), standalone=question, answer=Answer(text="Nobody."))


@pytest.mark.parametrize(
    ("mode", "searched"),
    [
        (ConversationMode.raw, ("Who has them?", (), [])),
        (ConversationMode.rewritten, ("WHO HAS THEM?", (), [])),
        (ConversationMode.fused, ("Who has them?", HISTORY, [])),
        (ConversationMode.gold, ("Who has them?", (), ["Who has them?", "Who has the keys?"])),
    ],
)
def test_each_mode_searches_its_own_texts(mode: ConversationMode, searched: object) -> None:
    knowledge: Any = ScriptedKnowledge()
    TraceTask(settings=SETTINGS, collection="docs", k=10, mode=mode).run(knowledge, QUESTION)
    assert knowledge.calls == [searched]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (ConversationMode.raw, ("Who has them?", (), [])),
        (ConversationMode.rewritten, ("WHO HAS THEM?", (), [])),
        (ConversationMode.fused, ("Who has them?", HISTORY, [])),
        (ConversationMode.gold, ("Who has the keys?", (), [])),
    ],
)
def test_each_mode_asks_its_own_text(mode: ConversationMode, expected: object) -> None:
    knowledge: Any = ScriptedKnowledge()
    AnswerTask(settings=SETTINGS, collection="docs", mode=mode).run(knowledge, QUESTION)
    assert knowledge.calls == [expected]


def test_a_rewrite_that_changes_nothing_has_no_variants() -> None:
    same = Question(id="q", text="Who?", grades={}, rewrite="Who?")
    assert list_gold_variants(same) == list_gold_variants(Question(id="q", text="Who?", grades={})) == ()


class ScriptedModel:
    """Answers every request with the rewrite of QUESTION."""

    async def complete(self, *_: Any, **__: Any) -> Completion:
        return Completion(text=json.dumps({"standalone": QUESTION.rewrite}))


def test_gold_searches_what_a_model_with_these_rewrites_would_search() -> None:
    understander = LlmUnderstander(client=ScriptedModel(), rules=RuleUnderstander(), timeout=1.0, system="Rewrite.")
    with recording():
        understanding = asyncio.run(understander.understand(Query(text=QUESTION.text), HISTORY))
    assert understanding.variants == list_gold_variants(QUESTION)
