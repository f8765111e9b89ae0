import pytest

from rag_core.errors import DocumentError
from rag_core.parsing.office.rtf import RtfParser
from rag_core.types import Document, Section

FONTS = r"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}{\f2\fcharset2 Symbol;}{\f3\fcharset128 Mincho;}}"
STYLES = r"{\stylesheet{\s0 Normal;}{\s1 heading 1;}{\s2\outlinelevel1 Mine;}{\*\cs10 Other;}{\s3 toc 1;}}"


def parse(content: str) -> Document:
    body = rf"{{\rtf1\ansi\ansicpg1252\deff0{FONTS}{STYLES}\pard {content}}}"
    return RtfParser().parse("file:///a.rtf", body.encode("ascii"))


def test_headings_are_found_by_name_and_by_outline_level() -> None:
    document = parse(r"\s1 One\par\pard text\par\pard\s2 Two\par\pard\outlinelevel2 Three\par\pard\s3 One 1\par")
    assert document.text == "# One\n\ntext\n\n## Two\n\n### Three\n"
    assert document.sections[2] == Section(path=("One", "Two", "Three"), start=document.text.index("###"))
    assert document.title == "One"


def test_the_information_group_is_title_and_metadata() -> None:
    info = r"{\info{\title Caf\'e9}{\author Eva}{\keywords a, b}{\creatim\yr2020\mo1\dy2}{\*\company C}}"
    document = parse(info + "text")
    assert document.title == "Café"
    assert document.metadata == {"author": "Eva", "date": "2020-01-02", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (r"Caf\'e9 \u8364?\'80 \emdash  a\~b \{x\}", "Café €€ \u2014 a\u00a0b {x}"),
        (r"{\f1\'cf\'f0\'e8} {\f2 a\'b3} {\f3\'83\'65}", "При \u03b1≥ テ"),
        (r"\uc2\u-10179??\u-8704??\uc1 x\u57343?", "\U0001f600x\ufffd"),
        (r"10{\super 5} m{\sub 2}", "10^5 m2"),
        (r"seen{\v hidden}{\deleted old}", "seen"),
        (r"End.\page Next page. A\column B \softline C", "End.\nNext page. A\nB  C"),
        (r"{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}{\pict 00ff}{\*\unknown no}", "link"),
        (r"{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt in a box}}", "in a box"),
        ("\\bin4 }}{{after", "after"),
        (r"said{\super\chftn{\footnote\chftn  a note}}.\par", "said[^1].\n\n[^1]: a note"),
        (r"said{\*\atnauthor Bo}{\*\annotation why?}\par next\par", "said\n\n> Bo: why?\n\nnext"),
        (r"{\listtext\'b7\tab}one\par{\listtext 2.\tab}two\par", "- one\n2. two"),
        (r"{\header Company\par}{\footer Page 1\par}{\headerf Company\par}text", "text\n\nCompany"),
        (r"a\line b\tab c\par\par # d", "a\nb c\n\n\\# d"),
    ],
)
def test_visible_text_is_kept(content: str, text: str) -> None:
    assert parse(content).text.strip() == text


def test_a_table_keeps_its_merged_cells() -> None:
    first = r"\trowd\clmgf\cellx1\clmrg\cellx2\clvmgf\cellx3\pard\intbl A\cell\cell B|\cell\row"
    second = r"\trowd\cellx1\cellx2\clvmrg\cellx3\pard\intbl 1\cell 2\par 3\cell\cell\row"
    text = parse(rf"before\par {first}{second}\pard after\par").text
    assert text == "before\n\n| A | A | B\\| |\n| --- | --- | --- |\n| 1 | 2 3 | B\\| |\n\nafter\n"


def test_a_truncated_document_is_read_up_to_its_end() -> None:
    assert RtfParser().parse("a.rtf", rb"{\rtf1 text {\b bold").text == "text bold\n"


def test_deeply_nested_groups_are_read() -> None:
    assert parse("{" * 100_000 + "text" + "}" * 100_000).text == "text\n"


@pytest.mark.parametrize(("body", "reason"), [(b"", "empty"), (b"text", "not an RTF"), (b"{\\urtf1 x}", "not an RTF")])
def test_a_body_that_is_not_rtf_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        RtfParser().parse("a.rtf", body)


def test_the_information_group_is_not_part_of_the_text() -> None:
    info = rb"{\info{\title T}{\operator Jane Doe}{\creatim\yr2020\mo1\dy2}{\category Cat}{\manager Boss}{\comment C}}"
    document = RtfParser().parse("file:///a.rtf", rb"{\rtf1\ansi" + info + rb"\pard text\par}")
    assert (document.title, document.text) == ("T", "text\n")
