"""An Answerer that splits conversations between two variants, and records which of them answered, and how.

The assignment depends on nothing but the names and the conversation: any replica gives the same one, without a store.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

from rag_core.errors import GenerationError
from rag_core.events import Listener, ignore_event
from rag_core.protocols import Answerer
from rag_core.storage.exposures import Exposure, Variant
from rag_core.types import Query, Reply

BUCKETS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment. `share` is the share of conversations that the treatment gets; changing it moves conversations.

    A new `name`, such as one with a version, assigns all conversations again.
    """

    name: str
    share: float = 0.5

    def bucket(self, tenant: str, conversation: str) -> int:
        """A number below BUCKETS that is independent of those of other experiments."""
        return _hash_number(f"{self.name}|{tenant}|{conversation}") % BUCKETS

    def variant(self, bucket: int) -> Variant:
        return "treatment" if bucket < round(self.share * BUCKETS) else "control"

    def assign(self, query: Query) -> Exposure:
        """The exposure of a query that has not been answered yet."""
        conversation = conversation_key(query)
        bucket = self.bucket(query.tenant, conversation)
        return Exposure(
            experiment=self.name,
            variant=self.variant(bucket),
            bucket=bucket,
            conversation=hash_conversation(query.tenant, conversation),
            share=self.share,
            tenant=query.tenant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedAnswerer:
    """An Answerer whose outcomes complete the exposure. `record` receives it, unless the caller cancels the answer.

    An answer whose generator failed after its first words counts as an error.
    """

    answerer: Answerer
    exposure: Exposure
    record: Callable[[Exposure], None]

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        """Raises what the answerer raises."""
        started = time.perf_counter()
        try:
            reply = await self.answerer.answer(query, emit)
        except Exception as error:
            seconds = time.perf_counter() - started
            self.record(replace(self.exposure, seconds=seconds, error=type(error).__name__))
            raise
        seconds = time.perf_counter() - started
        finish = reply.answer.finish
        kind = GenerationError.__name__ if finish == "broken" else ""
        self.record(replace(self.exposure, seconds=seconds, error=kind, abstained=finish == "abstained"))
        return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAnswerer:
    """An Answerer of two others. `record` receives an exposure per question, unless the caller cancels it."""

    experiment: Experiment
    control: Answerer
    treatment: Answerer
    record: Callable[[Exposure], None]

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        """Answers with the variant of the query's conversation, and raises what that raises."""
        exposure = self.experiment.assign(query)
        answerer = self.treatment if exposure.variant == "treatment" else self.control
        return await ExposedAnswerer(answerer=answerer, exposure=exposure, record=self.record).answer(query, emit)


def hash_conversation(tenant: str, conversation: str) -> str:
    """The hash by which exposures name a conversation."""
    return f"{_hash_number(f'{tenant}|{conversation}'):016x}"


def conversation_key(query: Query) -> str:
    """The session, or else the first message of the history that the client sends with every question."""
    return query.session_id or (query.history[0].text if query.history else query.text)


def _hash_number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
