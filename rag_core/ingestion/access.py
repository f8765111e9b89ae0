"""The groups that can read a document: its own list, or else what the rules of the settings say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rag_core.storage.queue import JSON_LINES_SCHEME
from rag_core.types import Entry, StoredDocument, comparison_text


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """A rule for the documents whose decoded uri matches `pattern` and that have the metadata key `key`, if it has one.

    The lines of a JSON-lines file match with and without `jsonl:`. Without `groups`, the values of the key are the
    groups.
    """

    pattern: re.Pattern[str]
    key: str = ""
    groups: tuple[str, ...] = ()

    def find_groups(self, uri: str, metadata: Mapping[str, Any]) -> Sequence[str]:
        if not any(map(self.pattern.fullmatch, (uri, uri.removeprefix(JSON_LINES_SCHEME)))):
            return ()
        if self.key and self.key not in metadata:
            return ()
        return self.groups or _list_values(metadata[self.key])


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of the settings. `default` holds the groups of documents that match no rule; empty: everyone."""

    rules: tuple[AccessRule, ...] = ()
    default: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The metadata keys that rules read."""
        return sorted({rule.key for rule in self.rules if rule.key})

    def find_groups(self, entry: Entry, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        """The groups that can read the document, sorted; empty: everyone of the tenant.

        The list of the entry replaces the rules. The groups of all matching rules are joined.
        """
        if entry.access is not None:
            return tuple(sorted(set(entry.access)))
        uri = unquote(entry.uri)
        groups = {group for rule in self.rules for group in rule.find_groups(uri, metadata)}
        return tuple(sorted(groups)) or self.default

    def find_stored_groups(self, entry: Entry, stored: StoredDocument | None) -> tuple[str, ...]:
        """The groups of a document that has not been read now.

        The store has no metadata of one that failed permanently, so that one keeps the groups that its metadata gave.
        """
        if stored is None:
            return self.find_groups(entry, {})
        has_metadata = stored.status == "completed" or stored.retryable
        if self.keys and entry.access is None and stored.access and not has_metadata:
            return stored.access
        return self.find_groups(entry, stored.metadata)


NO_RULES = AccessRules()


def _list_values(value: Any) -> list[str]:
    values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
    return [text for text in map(comparison_text, values) if text.strip()]
