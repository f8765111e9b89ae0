"""The rule for files with secrets: other users of the machine cannot read them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_core.errors import ConfigError
from rag_core.secret_references import check_permissions, is_reference
from rag_core.telemetry.scrubbing import scrub

MARKS = ("[secret]", "[key]", "[token]")
"""The texts that scrubbing puts in the place of secrets."""


def check_private(file: Path, document: Mapping[str, Any]) -> None:
    """Raises ConfigError if the document, which was read from the file, has a secret that other users can read."""
    secret = next(_list_secrets(document, ()), "")
    if secret:
        try:
            check_permissions(file.stat())
        except ValueError as error:
            message = f"{file} contains a secret ({secret}): {error}, or move the secret to the environment"
            raise ConfigError(message) from None


def _list_secrets(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """Yields the dotted keys of the texts that look like secrets, as the logs recognize them."""
    match value:
        case Mapping():
            for key, member in value.items():
                yield from _list_secrets(member, (*path, str(key)))
        case list():
            for member in value:
                yield from _list_secrets(member, path)
        case str() if value and not is_reference(value):
            cleaned = str(scrub({path[-1]: value})[path[-1]]) if path else value
            if _is_encryption_key(path, value) or any(mark in cleaned and mark not in value for mark in MARKS):
                yield ".".join(path)


def _is_encryption_key(path: tuple[str, ...], value: str) -> bool:
    """True for a key of `encryption.keys`, which looks like no other secret, in a mapping or in an override."""
    setting, _, key = value.partition("=")
    is_override = setting.startswith("encryption.keys.") and not key.startswith(("env:", "file:", "vault:"))
    return path[-3:-1] == ("encryption", "keys") or is_override
