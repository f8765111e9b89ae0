"""The scopes that a caller of the API can have, and roles, which are named sets of scopes."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from rag_core.errors import UsageError

Scope: TypeAlias = Literal[
    "ingest:write",
    "ingest:bulk",
    "retrieve:read",
    "chat:write",
    "jobs:read",
    "documents:delete",
    "memory:delete",
    "evaluate:write",
    "policy:override",
    "admin",
]

SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

_READER: frozenset[Scope] = frozenset({"retrieve:read", "chat:write"})

ROLES: Mapping[str, frozenset[Scope]] = MappingProxyType(
    {
        "reader": _READER,
        "writer": _READER | {"ingest:write", "jobs:read", "documents:delete", "memory:delete"},
        "evaluator": _READER | {"jobs:read", "evaluate:write"},
        "admin": SCOPES,
    }
)


def parse_scopes(names: Collection[str]) -> frozenset[Scope]:
    """Raises UsageError for a name that is not a scope."""
    if unknown := sorted(set(names) - SCOPES):
        raise UsageError(f"a scope must be one of {', '.join(sorted(SCOPES))}, got {unknown[0]!r:.60}")
    return frozenset(scope for scope in SCOPES if scope in names)


def expand_roles(roles: Collection[str]) -> frozenset[Scope]:
    """The scopes of all roles together. Raises UsageError for a name that is not a role."""
    if unknown := sorted(set(roles) - ROLES.keys()):
        raise UsageError(f"a role must be one of {', '.join(ROLES)}, got {unknown[0]!r:.60}")
    return frozenset(scope for role in roles for scope in ROLES[role])
