"""Options of a request that only some callers can use, because they weaken the profile's protection."""

from collections.abc import Mapping

from serve.authentication.caller import Caller
from serve.variants import GuardMode

STRENGTHS: Mapping[GuardMode, int] = {"off": 0, "flag": 1, "block": 2, "regenerate": 2}


def check_guard(caller: Caller, requested: GuardMode | None, configured: GuardMode) -> None:
    """Raises ScopeError if the guard that the caller requests is weaker than the profile's one, unless it can
    override policies."""
    if requested and STRENGTHS[requested] < STRENGTHS[configured]:
        caller.require("policy:override")
