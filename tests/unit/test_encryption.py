"""Texts that are encrypted with keys that can be replaced."""

from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.config import EncryptionSettings
from rag_core.encryption import PLAIN_TEXT, PREFIX, TextCipher
from rag_core.errors import ConfigError, EncryptionError
from rag_core.settings import load_settings
from rag_core.wiring.encryption import build_cipher

PLACE = ("acme", "conversation", "message", "text")
KEYS = {id: b64encode(id.encode() * 16).decode() for id in ("k1", "k2")}
TEXT = st.text()


def cipher(active: str, *ids: str) -> TextCipher:
    keys = {id: KEYS[id] for id in (active, *ids)}
    return build_cipher(EncryptionSettings.model_validate({"keys": keys, "active": active}))


ONE, TWO, BOTH = cipher("k1"), cipher("k2"), cipher("k2", "k1")


@settings(max_examples=50)
@given(TEXT)
def test_every_text_is_restored_and_looks_different_each_time(text: str) -> None:
    one, other = (ONE.encrypt(text, PLACE) for _ in range(2))
    assert ONE.decrypt(one, PLACE) == ONE.decrypt(other, PLACE) == text
    assert (one == other) is (text == "")
    assert not text or one.startswith("enc:1:k1:")


@given(st.one_of(TEXT, st.builds("{}{}".format, st.sampled_from(["enc:0:", PREFIX, "enc:1:k1:AAAA"]), TEXT)))
def test_without_a_key_every_text_is_restored_even_if_it_looks_encrypted(text: str) -> None:
    stored = PLAIN_TEXT.encrypt(text, PLACE)
    assert PLAIN_TEXT.decrypt(stored, PLACE) == ONE.decrypt(stored, PLACE) == text


@given(st.lists(TEXT))
def test_lists_and_objects_are_restored(texts: list[str]) -> None:
    for one in (ONE, PLAIN_TEXT):
        assert one.decrypt_list(one.encrypt_list(texts, PLACE), PLACE) == texts
        assert one.decrypt_json(one.encrypt_json({"a": texts}, PLACE), PLACE) == {"a": texts}
    assert len(ONE.encrypt_list(texts, PLACE)) == bool(texts)


def test_a_new_key_encrypts_and_old_keys_still_decrypt() -> None:
    old, new = ONE.encrypt("hello", PLACE), BOTH.encrypt("hello", PLACE)
    assert (BOTH.decrypt(old, PLACE), BOTH.decrypt(new, PLACE), TWO.decrypt(new, PLACE)) == ("hello",) * 3
    with pytest.raises(EncryptionError, match=r"cannot decrypt text of conversation message: .* has no key k1"):
        TWO.decrypt(old, PLACE)
    with pytest.raises(EncryptionError, match="no key k1"):
        PLAIN_TEXT.decrypt(old, PLACE)


@pytest.mark.parametrize(
    "place",
    [("other", *PLACE[1:]), (*PLACE[:3], "standalone"), (*PLACE[:2], "m2", "text"), ("acmeconversation", *PLACE[2:])],
)
def test_a_value_that_is_moved_cannot_be_decrypted(place: tuple[str, ...]) -> None:
    with pytest.raises(EncryptionError, match="the value was changed"):
        ONE.decrypt(ONE.encrypt("hello", PLACE), place)


def test_a_changed_value_or_another_key_of_the_same_id_is_noticed() -> None:
    stored = ONE.encrypt("hello", PLACE)
    changed = stored[:-6] + ("A" if stored[-6] != "A" else "B") + stored[-5:]
    other = build_cipher(EncryptionSettings.model_validate({"keys": {"k1": KEYS["k2"]}, "active": "k1"}))
    for reader, value in ((ONE, changed), (other, stored), (ONE, "enc:1:k1:AAAA"), (ONE, "enc:1:k1:A")):
        with pytest.raises(EncryptionError, match="key k1 is another one than it was encrypted with, or the value"):
            reader.decrypt(value, PLACE)


@pytest.mark.parametrize("key", ["c2hvcnQ=", "not base64 at all", "A" * 44])
def test_a_key_has_32_bytes_and_is_not_shown(key: str) -> None:
    section = EncryptionSettings.model_validate({"keys": {"k1": key}, "active": "k1"})
    with pytest.raises(ConfigError, match=r"encryption.keys.k1 must be 32 bytes in base64") as refused:
        build_cipher(section)
    assert key not in str(refused.value)
    assert key not in repr(section)


def test_the_active_key_is_one_of_the_keys() -> None:
    for overrides in (["encryption.active=k1"], ["encryption.keys={k1: env:A}"]):
        with pytest.raises(ConfigError, match="encryption: active must be one of the keys"):
            load_settings(overrides=overrides, environment={})
