"""Rate limits of requests, with the headers of draft-ietf-httpapi-ratelimit-headers.

A request is charged before its work. The tokens of an answer are known only afterwards, so later requests pay for them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

from fastapi import Request

from rag_core.config import RateKind, Settings
from rag_core.errors import RateLimitedError, UnavailableError
from rag_core.events import Event, Listener, Usage, ignore_event
from rag_core.protocols import Answerer
from rag_core.storage.queue import IngestRequest
from rag_core.storage.rate_limits import Balance, Charge
from rag_core.types import Query, Reply
from serve.authentication.caller import Caller
from serve.http.dependencies import Chatter, Reader
from serve.services import Services

WINDOW_SECONDS = 60

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Use:
    """An amount of one kind that a request uses. The bucket needs room for `need`, or for the amount if that is None.

    An amount that is larger than the bucket needs an unused one.
    """

    kind: RateKind
    amount: float
    need: float | None = None

    def charge(self, per_minute: int, burst: int, user: str) -> Charge:
        room = per_minute if self.kind == "tokens" else min(per_minute, burst)
        need = min(self.amount, room) if self.need is None else self.need
        return Charge(kind=self.kind, user=user, cost=self.amount, need=need, per_minute=per_minute, burst=room)


async def limit_searches(request: Request, caller: Reader) -> None:
    """Raises RateLimitedError if the caller or its tenant searches too often."""
    await charge_request(request, caller, Use("searches", 1))


async def limit_answers(request: Request, caller: Chatter) -> None:
    """Raises RateLimitedError if there are too many answers, or if earlier answers used too many tokens."""
    await charge_request(request, caller, Use("answers", 1), Use("tokens", 0, need=1))


def list_ingest_uses(caller: Caller, job: IngestRequest) -> list[Use]:
    """The documents of a job. The documents of a source are not known yet, so each location counts as one."""
    documents, bulk = len(job.documents), len(job.locations)
    if "ingest:bulk" in caller.scopes:
        documents, bulk = 0, documents + bulk
    amounts: Mapping[RateKind, int] = {"documents": documents, "bulk_documents": bulk}
    return [Use(kind, amount) for kind, amount in amounts.items() if amount]


async def charge_request(request: Request, caller: Caller, *uses: Use) -> None:
    """Charges the uses to the caller and its tenant.

    Raises RateLimitedError, and charges nothing, if a limit has no room for one of them.
    """
    services: Services = request.app.state.profiles.own.services
    charges = list_charges(services.settings, caller, uses)
    if not charges:
        return
    balances = await services.rate_limiter.charge(caller.tenant, charges)
    request.state.rate_limit_headers = describe_limits(charges, balances)
    wait = max(balance.wait for balance in balances)
    if wait > 0:
        refused = next(charge for charge, balance in zip(charges, balances, strict=True) if balance.wait == wait)
        raise RateLimitedError(_describe_rule(refused), wait)


def list_charges(settings: Settings, caller: Caller, uses: Sequence[Use]) -> list[Charge]:
    """The charges to the tenant, and to the user if there is one, for limits that are not 0."""
    limits, charges = settings.rate_limits, []
    for use in uses if settings.limits_rates else ():
        if rate := limits.tenant_rate(caller.tenant, use.kind):
            charges.append(use.charge(rate, limits.burst, ""))
        if caller.user and (rate := limits.user_rate(caller.tenant, use.kind)):
            charges.append(use.charge(rate, limits.burst, caller.user))
    return charges


def describe_limits(charges: Sequence[Charge], balances: Sequence[Balance]) -> Mapping[str, str]:
    """The headers: `r` is the room that is left, `t` the seconds until the bucket is unused again."""
    policies = [f'"{_policy_name(charge)}";q={charge.per_minute:g};w={WINDOW_SECONDS}' for charge in charges]
    rooms = []
    for charge, balance in zip(charges, balances, strict=True):
        seconds = ceil((charge.burst - balance.room) * WINDOW_SECONDS / charge.per_minute)
        rooms.append(f'"{_policy_name(charge)}";r={max(floor(balance.room), 0)};t={seconds}')
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(rooms)}


def _policy_name(charge: Charge) -> str:
    return f"user-{charge.kind}" if charge.user else charge.kind


def _describe_rule(charge: Charge) -> str:
    owner, kind = "user" if charge.user else "tenant", charge.kind.replace("_", " ")
    return f"a {owner} can use at most {charge.per_minute:g} {kind} a minute"


@dataclass(frozen=True, slots=True)
class MeteredAnswerer:
    """An Answerer that charges the tokens of an answer to its caller, including those of an answer that fails.

    The tokens of an answer that its client cancels are not known, and not charged.
    """

    answerer: Answerer
    services: Services
    caller: Caller

    async def answer(self, query: Query, emit: Listener = ignore_event) -> Reply:
        tokens = 0

        async def count(event: Event) -> None:
            nonlocal tokens
            if isinstance(event, Usage):
                tokens += event.prompt_tokens + event.completion_tokens
            await emit(event)

        try:
            return await self.answerer.answer(query, count)
        finally:
            await self._charge(tokens)

    async def _charge(self, tokens: int) -> None:
        """Only logs that the store is unavailable: the answer is complete."""
        charges = list_charges(self.services.settings, self.caller, [Use("tokens", tokens, need=-inf)])
        if tokens and charges:
            try:
                await self.services.rate_limiter.charge(self.caller.tenant, charges)
            except UnavailableError as error:
                _log.warning("tokens not charged (%d): %s", tokens, error)
