"""Encryption of stored texts by AES-256-GCM, with keys that can be replaced one after the other.

A stored value is `enc:1:KEY:VALUE`: the id of the key, and in base64 a random nonce of 96 bits and the ciphertext. The
place of a text is authenticated with it, so a value that is copied to another row or column cannot be decrypted.
"""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rag_core.errors import EncryptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Place: TypeAlias = tuple[str, ...]
"""The tenant, the ids of a row, and the column."""

NONCE_BYTES = 12
PREFIX, PLAIN_PREFIX = "enc:1:", "enc:0:"
"""The beginnings of an encrypted value, and of a plain text that itself begins like one of the two."""

_ENCRYPTED = re.compile(r"enc:1:([A-Za-z0-9_-]+):([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True, slots=True)
class TextCipher:
    """Encrypts with the key `active`, and decrypts with all keys. Without an active key, texts are stored plain.

    Empty texts, lists and objects stay as they are.
    """

    keys: Mapping[str, "AESGCM"] = field(default_factory=dict, repr=False)
    active: str = ""

    @property
    def prefix(self) -> str:
        """The beginning of the values that the active key encrypted; empty without one."""
        return f"{PREFIX}{self.active}:" if self.active else ""

    def encrypt(self, text: str, place: Place) -> str:
        if not text or not self.active:
            return PLAIN_PREFIX + text if text.startswith((PREFIX, PLAIN_PREFIX)) else text
        nonce = os.urandom(NONCE_BYTES)
        sealed = self.keys[self.active].encrypt(nonce, text.encode("utf-8", "surrogatepass"), _encode_place(place))
        return self.prefix + b64encode(nonce + sealed).decode()

    def decrypt(self, stored: str, place: Place) -> str:
        """Raises EncryptionError if the key of the value is missing, or if the value was changed or moved."""
        match = _ENCRYPTED.fullmatch(stored)
        if match is None:
            return stored.removeprefix(PLAIN_PREFIX)
        id = match[1]
        if id not in self.keys:
            raise EncryptionError(f"cannot decrypt {_describe(place)}: encryption.keys has no key {id}")
        from cryptography.exceptions import InvalidTag

        try:
            value = b64decode(match[2])
            text = self.keys[id].decrypt(value[:NONCE_BYTES], value[NONCE_BYTES:], _encode_place(place))
        except (InvalidTag, ValueError):
            reason = f"key {id} is another one than it was encrypted with, or the value was changed"
            raise EncryptionError(f"cannot decrypt {_describe(place)}: {reason}") from None
        return text.decode("utf-8", "surrogatepass")

    def encrypt_list(self, texts: Sequence[str], place: Place) -> list[str]:
        """The texts as one encrypted element, so that their number is hidden too."""
        if not texts or not self.active:
            return [self.encrypt(text, place) for text in texts]
        return [self.encrypt(json.dumps(list(texts)), place)]

    def decrypt_list(self, stored: Sequence[str], place: Place) -> list[str]:
        if len(stored) == 1 and stored[0].startswith(PREFIX):
            texts: list[str] = json.loads(self.decrypt(stored[0], place))
            return texts
        return [self.decrypt(text, place) for text in stored]

    def encrypt_json(self, value: Any, place: Place) -> Any:
        """The list or object as the encrypted text of its JSON."""
        return self.encrypt(json.dumps(value), place) if value and self.active else value

    def decrypt_json(self, stored: Any, place: Place) -> Any:
        return json.loads(self.decrypt(stored, place)) if isinstance(stored, str) else stored


PLAIN_TEXT = TextCipher()
"""Stores texts as they are, and decrypts none."""


def _encode_place(place: Place) -> bytes:
    return json.dumps(place).encode()


def _describe(place: Place) -> str:
    """The row and the column, without the tenant."""
    return f"{place[-1]} of {' '.join(place[1:-1])}"
