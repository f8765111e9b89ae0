"""How a gateway is used: answers, cost and quality by day."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date
from pathlib import Path

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rag_core.errors import UsageError, validation_lines
from rag_core.storage.replies import RatedReply

TOKENS_PER_PRICE = 1_000_000


class Price(BaseModel):
    """The price of a million tokens of a model. Cached tokens are a part of the prompt tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)

    def cost(self, reply: RatedReply) -> float:
        cached_price = self.prompt if self.cached is None else self.cached
        uncached_tokens = reply.prompt_tokens - reply.cached_tokens
        prompt = uncached_tokens * self.prompt + reply.cached_tokens * cached_price
        return (prompt + reply.completion_tokens * self.completion) / TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True, order=True)
class DayKey:
    """What the answers of a row have in common."""

    day: date
    profile: str
    pipeline_version: str
    collection: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The answers of one day, one pipeline and one collection. `cost` is None if the model has no price.

    Of `answers`, `abstained` did not answer, `cited` have a citation, `supported` were judged so among `judged`, and
    `thumbs_up` and `thumbs_down` were rated so. Means are None if there is nothing to average.
    """

    key: DayKey
    answers: int
    questions: int
    p50_seconds: float
    p95_seconds: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost: float | None
    abstained: int
    cited: int
    judged: int
    supported: int
    mean_confidence: float | None
    thumbs_up: int
    thumbs_down: int
    mean_stars: float | None
    corrected: int
    signals: Mapping[str, int] = field(default_factory=dict)


def read_prices(path: Path) -> Mapping[str, Price]:
    """Reads YAML: `MODEL: {prompt: 0.15, completion: 0.6, cached: 0.075}`, per million tokens.

    Raises UsageError if the file breaks a rule.
    """
    try:
        return TypeAdapter(dict[str, Price]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read as a table of prices: {error}") from error
    except ValidationError as error:
        raise UsageError("; ".join(validation_lines(error, str(path)))) from None


def price_reply(reply: RatedReply, prices: Mapping[str, Price]) -> float | None:
    """The cost of an answer: 0 without a language model, None if its model has no price."""
    if not reply.model:
        return 0.0
    return prices[reply.model].cost(reply) if reply.model in prices else None


def summarize_days(replies: Iterable[RatedReply], prices: Mapping[str, Price]) -> list[Day]:
    """Sums up the answers of each day (in UTC), pipeline and collection, in the order of their keys."""
    groups = defaultdict[DayKey, list[RatedReply]](list)
    for reply in replies:
        day = reply.created_at.astimezone(UTC).date()
        key = DayKey(day, reply.profile, reply.pipeline_version, reply.collection, reply.model)
        groups[key].append(reply)
    return [_summarize_day(key, groups[key], prices) for key in sorted(groups)]


def _summarize_day(key: DayKey, replies: list[RatedReply], prices: Mapping[str, Price]) -> Day:
    seconds = [reply.seconds for reply in replies]
    costs = [cost for reply in replies if (cost := price_reply(reply, prices)) is not None]
    signals = [signal for reply in replies for signal in reply.signals]
    return Day(
        key=key,
        answers=len(replies),
        questions=len({reply.question for reply in replies}),
        p50_seconds=float(np.quantile(seconds, 0.5)),
        p95_seconds=float(np.quantile(seconds, 0.95)),
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        completion_tokens=sum(reply.completion_tokens for reply in replies),
        cached_tokens=sum(reply.cached_tokens for reply in replies),
        cost=sum(costs) if len(costs) == len(replies) else None,
        abstained=sum(reply.finish == "abstained" for reply in replies),
        cited=sum(bool(reply.cited_ids) for reply in replies),
        judged=sum(reply.verdict != "unchecked" for reply in replies),
        supported=sum(reply.verdict == "supported" for reply in replies),
        mean_confidence=_mean(reply.confidence for reply in replies),
        thumbs_up=sum(reply.rating == 1 for reply in replies),
        thumbs_down=sum(reply.rating == -1 for reply in replies),
        mean_stars=_mean(reply.stars for reply in replies),
        corrected=sum(bool(reply.corrected_answer) for reply in replies),
        signals={signal: signals.count(signal) for signal in sorted(set(signals))},
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
