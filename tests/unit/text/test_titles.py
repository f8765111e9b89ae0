import pytest

from rag_core.text.titles import file_name, has_words, missing_name_words, split_name


@pytest.mark.parametrize(
    "title",
    [
        *("", "-", "0000320193-23-000106", "EX-99.1", "10-K", "Form 10-K", "untitled", "Untitled 3", "Document1"),
        *("Dokument 2", "Slide 1", "Sheet1", "Microsoft Word - report", "PowerPoint Presentation", "report.doc"),
    ],
)
def test_a_title_that_a_program_made_up_has_no_words(title: str) -> None:
    assert not has_words(title)


@pytest.mark.parametrize(
    "title",
    ["AI", "Annual Report 2023", "Book of Kells", "関東", "Résumé", "Node.js", "Form follows function", "Scans"],
)
def test_a_title_in_a_language_has_words(title: str) -> None:
    assert has_words(title)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quarterly_report-2023.pdf", "quarterly report 2023"),
        ("annualReport2023Final.docx", "annual Report 2023 Final"),
        ("HTMLParser.md", "HTML Parser"),
        ("My%20long-term%20notes.v2.md", "My long-term notes.v2"),
        ("gr%C3%B6%C3%9FeMessen.txt.gz", "größe Messen"),
        ("0000320193-23-000106.txt", "0000320193 23 000106"),
    ],
)
def test_a_file_name_is_split_into_words(name: str, words: str) -> None:
    assert split_name(file_name(f"file:///folder/{name}")) == words


@pytest.mark.parametrize(
    ("uri", "title", "missing"),
    [
        ("file:///a/tide_gates.md", "Manual", "tide gates"),
        ("file:///a/tide_gates.md", "Gates, and the tide", ""),
        ("file:///a/gates-2023.md", "Gates", "gates 2023"),
        ("file:///a/a.zip!/tide_gates.md", "Manual", "tide gates"),
        ("file:///a/0000320193-23-000106.txt", "Manual", ""),
        ("file:///a/records.jsonl#17", "Manual", ""),
        ("https://host/wiki/Tide_gates", "Manual", ""),
    ],
)
def test_the_words_of_a_file_name_are_missing_unless_the_title_has_them(uri: str, title: str, missing: str) -> None:
    assert missing_name_words(uri, title) == missing
