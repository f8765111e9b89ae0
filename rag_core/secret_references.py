"""Secrets of the settings: the secret itself, or a reference as `env:NAME`, `file:/path` or `vault:mount/path#field`.

Settings hold the reference. The secret is read where it is used, so it is in no stored setting, log or job.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from time import monotonic

from rag_core.errors import ConfigError

HIDDEN = "[secret]"
MAX_FILE_BYTES = 65_536
VAULT_CACHE_SECONDS, VAULT_TIMEOUT = 60, 10
"""Seconds that a secret of Vault is used before it is read again, and that a request to Vault can take."""

_FORMS = {
    "env": (re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "env:NAME, with the name of an environment variable"),
    "file": (re.compile(r"[/~].*"), "file:/path, with an absolute path"),
    "vault": (re.compile(r"[^/#]+/[^#]+#[^#]+"), "vault:MOUNT/PATH#FIELD"),
}


class SecretText(str):
    """The text of a setting that is a secret or refers to one. Its representation shows only a reference."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(hide_secret(self))


def is_reference(text: str) -> bool:
    return text.partition(":")[0] in _FORMS and ":" in text


def check_reference(text: str) -> str:
    """Returns the text. Raises ValueError for a reference of the wrong form, without quoting it."""
    if is_reference(text):
        pattern, form = _FORMS[text.partition(":")[0]]
        if not pattern.fullmatch(text.partition(":")[2]):
            raise ValueError(f"a reference must be {form}")
    return text


def hide_secret(text: str) -> str:
    """The text if it is a reference or empty, else a placeholder."""
    return str(text) if not text or is_reference(text) else HIDDEN


def read_secret(text: str, setting: str) -> str:
    """Returns the secret that a reference names; any other text is the secret itself.

    Raises ConfigError if it cannot be read, with the name of the setting and the reference.
    """
    if not is_reference(text):
        return str(text)
    scheme, _, place = text.partition(":")
    try:
        return _READERS[scheme](check_reference(text) and place)
    except (LookupError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.args[0]
        raise ConfigError(f"{setting}: cannot read the secret {text}: {reason}") from None


def _read_variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise LookupError("the environment variable is not set, or empty")
    return value


def _read_file(place: str) -> str:
    """The text of the file without a newline at its end."""
    try:
        path = Path(place).expanduser()
    except RuntimeError:
        raise LookupError("there is no such home folder") from None
    with path.open("rb") as file:
        check_permissions(os.fstat(file.fileno()))
        body = file.read(MAX_FILE_BYTES + 1)
    if len(body) > MAX_FILE_BYTES or not body.strip():
        raise ValueError(f"the file must have between 1 and {MAX_FILE_BYTES} bytes")
    try:
        return body.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("the file must be UTF-8 text") from None  # that error would hold the secret


def check_permissions(status: os.stat_result) -> None:
    """Raises ValueError if other users can use the file of a secret. Postgres has the same rule for its key files.

    The group can read the file of another user, such as root: an orchestrator mounts secrets like that.
    """
    mode = stat.S_IMODE(status.st_mode)
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    if mode & 0o777 & ~allowed:
        raise ValueError(f"other users can use the file (mode {mode:04o}): run chmod {allowed & 0o640:o}")


def _read_vault(place: str) -> str:
    return _fetch_from_vault(place, int(monotonic() // VAULT_CACHE_SECONDS))


@lru_cache(maxsize=64)
def _fetch_from_vault(place: str, _period: int) -> str:
    """Reads the field of a secret from the KV engine, version 2. VAULT_ADDR and VAULT_TOKEN configure the client."""
    try:
        import hvac
        import requests
    except ModuleNotFoundError:
        raise LookupError("it requires the extra [vault]") from None
    path, _, field = place.partition("#")
    mount, _, path = path.partition("/")
    try:
        client = hvac.Client(timeout=VAULT_TIMEOUT, namespace=os.environ.get("VAULT_NAMESPACE"))
        answer = client.secrets.kv.v2.read_secret_version(path, mount_point=mount, raise_on_deleted_version=True)
        value = answer["data"]["data"].get(field)
    except (hvac.exceptions.VaultError, requests.RequestException, LookupError, TypeError) as error:
        # only the class: messages quote the address of Vault, which can contain a password
        raise LookupError(f"Vault failed ({type(error).__name__}); check VAULT_ADDR and VAULT_TOKEN") from None
    if not isinstance(value, str) or not value:
        raise LookupError("Vault has no text in this field")
    return value


_READERS: Mapping[str, Callable[[str], str]] = {"env": _read_variable, "file": _read_file, "vault": _read_vault}
