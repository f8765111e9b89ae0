"""The builder of the cipher for stored texts."""

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING

from rag_core.config import EncryptionSettings
from rag_core.encryption import PLAIN_TEXT, TextCipher
from rag_core.errors import ConfigError
from rag_core.secret_references import read_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32


def build_cipher(settings: EncryptionSettings) -> TextCipher:
    """Reads all keys. Raises ConfigError if one cannot be read, or is no key of AES-256."""
    if not settings.keys:
        return PLAIN_TEXT
    keys = {id: _build_key(read_secret(text, f"encryption.keys.{id}"), id) for id, text in settings.keys.items()}
    return TextCipher(keys, settings.active)


def _build_key(text: str, id: str) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        key = b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"encryption.keys.{id} must be {KEY_BYTES} bytes in base64; `openssl rand -base64 {KEY_BYTES}` makes one"
        )
    return AESGCM(key)
