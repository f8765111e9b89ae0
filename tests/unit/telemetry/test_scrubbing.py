import re
from uuid import UUID

import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.telemetry.scrubbing import _DETECTORS, _SUSPECT, MAX_TEXT_CHARS, _Detector, scrub, scrub_text

CARD = "4111 1111 1111 1111"
IBAN = "DE89 3704 0044 0532 0130 00"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("write to Ann.Lee+x@mail.example.org today", "write to [e-mail] today"),
        ("call +49 171 1234567 now", "call [phone] now"),
        ("call +1 (555) 010-9999", "call [phone]"),
        ("call (555) 010-9999 now", "call [phone] now"),
        ("call 555-010-9999", "call [phone]"),
        ("call 030 901820", "call [phone]"),
        (f"pay to {IBAN}.", "pay to [iban]."),
        ("pay to GB82WEST12345698765432", "pay to [iban]"),
        ("pay to BE68 5390 0754 7034", "pay to [iban]"),
        ("AE070331234567890123456 or EE382200221020145685", "[iban] or [iban]"),
        ("account-AD1200012030200359100100", "account-[iban]"),
        (f"card {CARD}, please", "card [card], please"),
        ("card 378282246310005", "card [card]"),
        ("ssn 123-45-6789", "ssn [ssn]"),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: [secret] [secret]"),
        ("sent Bearer abcdefghij to it", "sent Bearer [secret] to it"),
        ("password=hunter2 was wrong", "password=[secret] was wrong"),
        ("""{"api_key": "abc def", "k": 3}""", """{"api_key": [secret], "k": 3}"""),
        ("OPENAI_API_KEY=abc123", "OPENAI_API_KEY=[secret]"),
        ("host=db user=rag password='a b c' dbname=x", "host=db user=rag password=[secret] dbname=x"),
        ("cannot reach postgresql://rag:s3cr3t@db:5432/rag", "cannot reach postgresql://rag:[secret]@db:5432/rag"),
        ("redis://:s3c@r3t@cache:6379", "redis://:[secret]@cache:6379"),
        ("key sk-proj-abcdefghijklmnop1234", "key [key]"),
        ("key AKIAIOSFODNN7EXAMPLE", "key [key]"),
        ("token ghp_abcdefghijklmnopqrstuvwxyz0123456789", "token [key]"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "jwt [token]"),
        ("started with sk-proj-abcdefghijklmnop", "started with [key]"),
        ("loading with hf_aBcDeFgHiJkLmNoPqRsTuVwX", "loading with [key]"),
        ("cloned by ghp_abcdefghijklmnopqrstuvwxyz", "cloned by [key]"),
        ("AKIAIOSFODNNEXAMPLEX refused", "[key] refused"),
        ("posted by xoxb-abcdefghijkl", "posted by [key]"),
        ("passphrase=hunter", "passphrase=[secret]"),
        ("SECRET_KEY: abcdefgh", "SECRET_KEY: [secret]"),
        ("Cookie: session=abc; theme=dark", "Cookie: [secret]"),
        ("4-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1", "[card]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "[key]"),
    ],
)
def test_personal_data_and_secrets_are_removed_from_a_text(text: str, written: str) -> None:
    assert scrub_text(text) == written


@pytest.mark.parametrize(
    "text",
    [
        "nothing to see here",
        "12345678-1234-4123-8123-123456789012",
        "job 6fa459ea-ee8a-4ca4-894e-db77e160355e was ended: it was cancelled",
        # the check digits of an IBAN are right by chance in each of these ids
        "query 015d30f8-9e09-4707-ba12-106a0d9a4531, 07A727C2-EE05-4404-8FAB-CB5837595766",
        "query AE933216-7F64-4C62-9950-F4380DA1F172, db30136827b74642b6e0cf0ceaae4c68",
        "span ca89de26318641e1",
        "2026-11-21T23:50:27.123456+00:00",
        "rerank took longer than 0.010 s",
        "overlap must be in [0, size), got 60 of 50",
        "1700000000000 of 123456789012345678901234567890",
        "card 4111 1111 1111 1112",
        "AB13 WEST CAST DEFG HIJK",
        "host=/nowhere dbname=rag user=rag",
        "http://127.0.0.1:8000/v1/retrieve",
        "limit of 64 tokens: prompt_tokens is 3000",
        "a key to the red box, and the secret of its keeper",
        "version 0.12.0345 on 192.168.100.200",
    ],
)
def test_text_that_only_looks_like_personal_data_stays(text: str) -> None:
    assert scrub_text(text) == text


def test_values_of_any_shape_are_clean_to_the_bottom() -> None:
    class Foreign:
        def __str__(self) -> str:
            return "of ann@example.org"

    values = {
        "nested": [{"to": ("ann@example.org", 3, None, True, 0.5)}],
        "ann@example.org": b"ann@example.org",
        "foreign": Foreign(),
        "id": UUID(int=1),
        "db_password": {"any": "thing"},
        "secret_key": "a",
        "cookie": "b",
        "prompt_tokens": 12,
    }
    assert scrub(values) == {
        "nested": [{"to": ["[e-mail]", 3, None, True, 0.5]}],
        "[e-mail]": "b'[e-mail]'",
        "foreign": "of [e-mail]",
        "id": "00000000-0000-0000-0000-000000000001",
        "db_password": "[secret]",
        "secret_key": "[secret]",
        "cookie": "[secret]",
        "prompt_tokens": 12,
    }


def test_a_text_is_cut_after_16000_characters_and_the_others_are_counted() -> None:
    assert scrub_text("a" * (MAX_TEXT_CHARS + 3)) == "a" * MAX_TEXT_CHARS + "... (3 more characters)"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["a", "1", "1 ", "a@", "a.", "-", "+1(", "0", "://a:", "token", "AB12", "(0", "key="])
def test_no_text_keeps_it_for_long(piece: str) -> None:
    assert scrub_text("@key " + piece * (MAX_TEXT_CHARS // len(piece)))


@pytest.mark.timeout(20)
def test_numbers_that_are_not_phones_because_of_their_end_take_no_longer() -> None:
    text = f"+{'1' * 35}a " * 400
    assert scrub_text(text) == text


@given(before=st.text(alphabet="abc ,.:;\"'()\n", max_size=20), after=st.text(alphabet=" ,;\"')\n", max_size=20))
def test_an_address_is_found_at_any_place(before: str, after: str) -> None:
    assert not re.search("lee|example", scrub_text(f"{before} ann.lee@example.org{after}"))


@pytest.mark.slow
@given(st.text(max_size=200))
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    once = scrub_text(text)
    assert scrub_text(once) == once


@pytest.mark.parametrize("form", _DETECTORS, ids=lambda form: form.replacement)
@settings(max_examples=scale_examples(30))
@given(data=st.data())
def test_no_short_cut_skips_a_text_that_a_pattern_finds(form: _Detector, data: st.DataObject) -> None:
    assert _SUSPECT.search(data.draw(st.from_regex(form.pattern)))
