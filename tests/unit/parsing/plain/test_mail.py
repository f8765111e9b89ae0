from email import policy
from email.message import EmailMessage, MIMEPart

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag_core.errors import DocumentError
from rag_core.parsing.plain.mail import MailParser
from rag_core.types import Document


def parse(body: bytes) -> Document:
    return MailParser().parse("file:///a.eml", body)


def message(**headers: str) -> EmailMessage:
    mail = EmailMessage()
    for name, value in {"From": "Ada Weir <ada@mill.org>", "To": "ben@mill.org", **headers}.items():
        mail[name] = value
    return mail


DATE = "Sat, 03 Feb 2024 04:05:06 +0100"


def test_headers_are_the_first_lines_and_metadata() -> None:
    mail = message(Subject="Größe 42", Date=DATE)
    mail.set_content("Hello Ben,\nthe wheel turns.\n\n# no heading\n")
    document = parse(mail.as_bytes())
    assert document.text == (
        f"From: Ada Weir <ada@mill.org>\nTo: ben@mill.org\nDate: {DATE}\nSubject: Größe 42\n\n"
        "Hello Ben,\nthe wheel turns.\n\n\\# no heading\n"
    )
    assert (document.title, document.media_type) == ("Größe 42", "message/rfc822")
    assert document.metadata == {
        "author": "Ada Weir <ada@mill.org>",
        "to": "ben@mill.org",
        "date": "2024-02-03T04:05:06+01:00",
    }


def test_html_is_read_only_if_there_is_no_plain_text() -> None:
    mail = message()
    mail.set_content("plain words")
    mail.add_alternative("<p>rich <b>words</b></p>", subtype="html")
    assert parse(mail.as_bytes()).text.endswith("\n\nplain words\n")
    mail = message()
    mail.set_content("<p>rich <b>words</b></p>", subtype="html")
    assert parse(mail.as_bytes()).text.endswith("\n\nrich **words**\n")


def test_every_text_of_a_mail_is_read_in_its_order() -> None:
    """A mailing list adds a footer, and a reader that shows pictures between texts has several of these."""
    mail = message()
    mail.set_content("<p>the <b>message</b></p>", subtype="html")
    mail.make_mixed()
    mail.attach(text_part("the footer"))
    assert parse(mail.as_bytes()).text.endswith("\n\nthe **message**\n\nthe footer\n")
    mail = message()
    mail.set_content("before")
    mail.add_alternative("<p>before, rich</p>", subtype="html")
    mail.make_mixed()
    mail.attach(text_part("behind"))
    assert parse(mail.as_bytes()).text.endswith("\n\nbefore\n\nbehind\n")


def test_an_empty_plain_form_gives_way_to_html() -> None:
    mail = message()
    mail.set_content(" ")
    mail.add_alternative("<p>rich words</p>", subtype="html")
    assert parse(mail.as_bytes()).text.endswith("\n\nrich words\n")


def text_part(text: str) -> MIMEPart:
    part = MIMEPart(policy=policy.default)
    part.set_content(text)
    return part


def test_attachments_are_named_and_text_ones_are_sections() -> None:
    mail = message(Subject="S")
    mail.set_content("See below.")
    mail.add_attachment("three wheels", filename="notes.txt")
    mail.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="plan.pdf")
    document = parse(mail.as_bytes())
    assert document.text.endswith(
        "See below.\n\nAttachments:\n\n- notes.txt\n- plan.pdf\n\n# notes.txt\n\nthree wheels\n"
    )
    assert [section.path for section in document.sections] == [("notes.txt",)]


def test_a_forwarded_mail_is_a_section() -> None:
    inner = message(Subject="Old news")
    inner.set_content("It was said before.")
    mail = message(Subject="Fwd")
    mail.set_content("See:")
    mail.add_attachment(inner)
    text = parse(mail.as_bytes()).text
    assert "- Old news\n\n# Old news\n\nFrom: Ada Weir" in text
    assert text.endswith("It was said before.\n")


@pytest.mark.parametrize(
    "head",
    [
        b"Subject: caf\xc3\xa9\nFrom: x",
        b"Subject: =?utf-8?q?caf=C3=A9?=\nFrom: x",
    ],
)
def test_a_header_is_read_encoded_or_not(head: bytes) -> None:
    assert parse(head + b"\n\nbody").title == "café"


@pytest.mark.parametrize(
    "head",
    [
        b"From: <@\nDate: 32 Foo\nSubject: =?x?q?=00?=",
        b"Content-Type: text/plain; charset=no-such",
        b"Content-Disposition: attachment; filename*=utf-9''%ff",
        b"Content-Type: multipart/mixed",
        b"To: " + b"(" * 5000,
    ],
)
def test_strange_headers_do_not_fail_a_mail(head: bytes) -> None:
    assert "body" in parse(b"Subject: s\n" + head + b"\n\nbody").text + "body"


def test_multiparts_nested_10_000_deep_are_refused() -> None:
    bomb = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(10_000))
    with pytest.raises(DocumentError, match="too large: more than 1000 multiparts in one mail"):
        parse(b"Subject: s\n" + bomb)


def test_many_multiparts_of_many_lines_are_refused() -> None:
    deep = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(900))
    with pytest.raises(DocumentError, match=r"too large: 900 multiparts in a mail of 20\.0 MB"):
        parse(b"Subject: s\n" + deep + b"x\n" * 10_000_000)


def test_mails_nested_10_000_deep_are_refused() -> None:
    with pytest.raises(DocumentError, match="damaged mail: parts nested too deep"):
        parse(b"Subject: s\n" + b"Content-Type: message/rfc822\n\n" * 10_000)


@pytest.mark.slow
def test_900_multiparts_are_read() -> None:
    deep = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(900))
    assert parse(b"Subject: s\n" + deep + b"\nend").text == "Subject: s\n\nend\n"


@given(st.binary(max_size=300))
@example(b";\x00*")  # Python's own parser fails at it
def test_any_bytes_become_text_that_can_be_stored(body: bytes) -> None:
    document = parse(b"Subject: s\nContent-Type: " + body)
    assert "\0" not in document.text + document.title
    (document.text + document.title + repr(document.metadata)).encode()


@pytest.mark.parametrize("subtype", ["plain", "html"])
@pytest.mark.parametrize(
    ("charset", "words"),
    [
        ("gb2312", "\u4f60\u597d"),
        ("iso-8859-2", "Za\u017c\u00f3\u0142\u0107"),
        ("iso-8859-15", "5 \u20ac"),
        ("iso-2022-jp", "\u3053\u3093\u306b\u3061\u306f"),
    ],
)
def test_a_part_is_read_in_its_declared_charset(subtype: str, charset: str, words: str) -> None:
    head = f"Subject: s\nContent-Type: text/{subtype}; charset={charset}\n\n"
    text = f"<p>{words}</p>" if subtype == "html" else words
    assert parse(head.encode() + text.encode(charset)).text == f"Subject: s\n\n{words}\n"
