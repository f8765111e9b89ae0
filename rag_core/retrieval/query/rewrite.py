"""Understanding by a language model, with one request per question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from rag_core.errors import ConfigError, GenerationError
from rag_core.models.chat import ChatMessage, Completer
from rag_core.models.fence import fence_text, fresh_nonce
from rag_core.retrieval.query.continuation import answers_clarification, choose_option
from rag_core.retrieval.query.intent import Intents
from rag_core.retrieval.query.rules import RuleUnderstander
from rag_core.stage import attempt, skip_stage
from rag_core.types import Clarification, Message, Query, Understanding, Variant

MAX_TURNS, MAX_ANSWER_CHARS = 2, 300
"""The earlier turns that the model reads, and the characters of each answer."""

MAX_TOKENS = 300
MAX_TEXT_CHARS, MAX_LIST_LENGTH = 500, 5
"""The most characters of a text that the model writes, and the most texts of a list. Longer replies are invalid."""

_MAX_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmUnderstander:
    """Searches the question together with the model's rewrite of it.

    If the request fails or takes longer than `timeout` seconds, the stage `rewrite` has the error, and the rules
    decide. `system` are the instructions. The question itself is always searched: a rewrite can lose what it asks.
    """

    client: Completer
    rules: RuleUnderstander
    timeout: float
    system: str

    async def understand(self, query: Query, history: Sequence[Message]) -> Understanding:
        if not history:
            return await self.rules.understand(query, history)
        question = choose_option(query.text, history[-1].text) if answers_clarification(history) else query.text
        reply = await attempt("rewrite", self._request(question, history), otherwise=None, timeout=self.timeout)
        if reply is None:
            return await self.rules.understand(query, history)
        for part in ("coreference", "classify"):
            skip_stage(part, "the model's reply has it")
        weights = self.rules.weights
        variants = [Variant(name="question", text=question, weight=weights.question)]
        if reply.standalone != question and weights.rewrite:
            variants.append(Variant(name="rewrite", text=reply.standalone, weight=weights.rewrite))
        return Understanding(
            standalone=reply.standalone,
            variants=tuple(variants),
            intent=self.rules.intents.check(reply.intent, query.text),
            resolved={reference.words: reference.meaning for reference in reply.resolved},
            sub_questions=tuple(reply.sub_questions),
            clarification=reply.clarification.build(),
            method="llm",
        )

    async def _request(self, question: str, history: Sequence[Message]) -> "_Reply":
        intents = self.rules.intents
        messages: list[ChatMessage] = [
            {"role": "system", "content": f"{self.system.strip()}\n\nIntents:\n{describe_intents(intents)}"},
            {"role": "user", "content": "\n\n".join(quote_messages(question, history))},
        ]
        schema = reply_schema(list(intents.by_name))
        completion = await self.client.complete(messages, schema=schema, max_tokens=MAX_TOKENS)
        text = completion.text
        try:
            return _Reply.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
        except ValidationError as error:
            quote = repr(text[:_MAX_SHOWN_CHARS])
            raise GenerationError(f"the model must answer with the JSON of a rewrite, got {quote}") from error


_Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split())), Field(max_length=MAX_TEXT_CHARS)]
_Texts = Annotated[list[_Text], Field(max_length=MAX_LIST_LENGTH)]


class _Reference(BaseModel):
    words: _Text
    meaning: _Text


class _Clarification(BaseModel):
    question: _Text = ""
    options: _Texts = []

    def build(self) -> Clarification | None:
        """None without a question."""
        return Clarification(question=self.question, options=tuple(self.options)) if self.question else None


class _Reply(BaseModel):
    standalone: Annotated[_Text, Field(min_length=1)]
    resolved: Annotated[list[_Reference], Field(max_length=MAX_LIST_LENGTH)] = []
    intent: str = ""
    clarification: _Clarification = _Clarification()
    sub_questions: _Texts = []


def load_rewrite_prompt(path: str = "") -> str:
    """The instructions in the key `system` of a YAML file; those of the library if the path is empty.

    Raises ConfigError if the file cannot be read or lacks the key.
    """
    file = Path(path) if path else files("rag_core.retrieval.query").joinpath("rewrite.yaml")
    try:
        return str(yaml.safe_load(file.read_text(encoding="utf-8"))["system"])
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ConfigError(
            f"conversation.understanding.prompt {file} must be YAML with the key system: {error}"
        ) from error


def quote_messages(question: str, history: Sequence[Message]) -> Iterator[str]:
    """Yields the last turns and the question, each in a fence."""
    nonce = fresh_nonce()
    for message in history[-2 * MAX_TURNS :]:
        yield fence_text("message", nonce, message.text[:MAX_ANSWER_CHARS], role=message.role)
    yield fence_text("question", nonce, question)


def describe_intents(intents: Intents) -> str:
    return "\n".join(f"- {name}: {intent.description}" for name, intent in intents.by_name.items())


def reply_schema(intents: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a reply, in the strict form: every key is required, and no other is allowed."""
    text: dict[str, Any] = {"type": "string"}
    texts = {"type": "array", "items": text}
    return _strict_object(
        standalone=text,
        resolved={"type": "array", "items": _strict_object(words=text, meaning=text)},
        intent={"type": "string", "enum": list(intents)},
        clarification=_strict_object(question=text, options=texts),
        sub_questions=texts,
    )


def _strict_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
