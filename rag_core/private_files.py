"""The rule for files with secrets: other users of the machine cannot read them."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_core.errors import ConfigError
from rag_core.secret_references import is_reference
from rag_core.telemetry.scrubbing import scrub

MARKS = ("[secret]", "[key]", "[token]")
"""The texts that scrubbing puts in the place of secrets."""


def check_private(file: Path, document: Mapping[str, Any]) -> None:
    """Raises ConfigError if the document, which was read from the file, has a secret that other users can read."""
    secret = next(_list_secrets(document, ()), "")
    if secret:
        status = file.stat()
        check_mode(file, secret, status.st_mode, owned=status.st_uid == os.geteuid())


def check_mode(file: Path, secret: str, mode: int, *, owned: bool) -> None:
    """Raises ConfigError unless only this user can read the file, as Postgres requires of the keys of its clients.

    `secret` says what is in the file. A file that another user, such as root, owns can be readable by its group.
    """
    allowed = 0o700 if owned else 0o740
    if stat.S_IMODE(mode) & ~allowed & 0o777:
        raise ConfigError(
            f"{file} contains a secret ({secret}), and other users can use the file (mode {stat.S_IMODE(mode):04o}): "
            f"run chmod 600 {file}, or move the secret to the environment"
        )


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
            if any(mark in cleaned and mark not in value for mark in MARKS):
                yield ".".join(path)
