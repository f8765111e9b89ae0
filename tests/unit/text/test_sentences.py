import pytest

from rag_core.text.sentences import sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Keys rotate, e.g. every week.",
        "Dr. Smith wrote it.",
        "J. Smith and K. L. Jones wrote it.",
        "Fig. 3 shows the keys.",
        "It weighs approx. 5.5 mg.",
        '"Really?" he said.',
        "As Smith et al. showed.",
        "It weighs ca. 5 kg.",
        "Anna Meier, Ph.D. Harvard, wrote it.",
        "Viele Tore, z. B. Schütze, d. h. Wehre, u. a. Klappen, sind offen.",
        "Nach Nr. 4 und Abs. 2 gilt Art. 5 der Ordnung.",
        "J. S. Bach schrieb sie.",
        "Sie belegte den 3. Platz.",
        "Im 19. Jahrhundert wurde sie gebaut.",
        "Am 31. März öffnet sie.",
        "He followed General Order No. 5 at once.",
        "Prof. Dr. Meier (vgl. Abb. 3) kam.",
    ],
)
def test_a_full_stop_within_a_sentence_does_not_cut(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The answer is No. We stay.", 2),
        ("They were in group 3. The others left.", 2),
        ("Es gab die 3. Die anderen gingen.", 2),
        ("It was built in 1850. Bridges followed.", 2),
        ("Es ist eine neue Art. Das ist selten.", 2),
        ("Ask me. I know.", 2),
        ("你好。今天很好｡再见", 3),
    ],
)
def test_a_word_that_only_looks_like_an_abbreviation_ends_its_sentence(text: str, count: int) -> None:
    assert len(sentences(text)) == count


def test_sentences_end_with_their_quotes_and_brackets() -> None:
    assert sentences('He said "Stop!" (Twice.) Then… Nothing?! Yes.') == [
        'He said "Stop!"',
        "(Twice.)",
        "Then…",
        "Nothing?!",
        "Yes.",
    ]


def test_chinese_and_japanese_sentences_need_no_space_between_them() -> None:
    assert sentences("你好。「行きますか？」はい！") == ["你好。", "「行きますか？」", "はい！"]  # noqa: RUF001


def test_a_wrapped_line_continues_but_a_blank_line_ends_a_sentence() -> None:
    assert sentences("one\ntwo\n \nthree") == ["one\ntwo", "three"]


def test_headings_list_items_and_table_rows_are_separate_sentences() -> None:
    text = "# Keys. And locks\nBody.\n- one. Two\n2) three\n| a. B | c |\n|---|---|\n| 1 | 2 |\nEnd"
    lines = ["# Keys. And locks", "Body.", "- one.", "Two", "2) three", "| a. B | c |", "|---|---|", "| 1 | 2 |", "End"]
    assert sentences(text) == lines


def test_every_line_of_fenced_code_is_separate_even_if_the_fence_stays_open() -> None:
    assert sentences("See:\n```py\nx = f(a. B)\n\n# c\n```\nDone.") == [
        "See:",
        "```py",
        "x = f(a. B)",
        "# c",
        "```",
        "Done.",
    ]
    assert sentences("~~~\na\nb") == ["~~~", "a", "b"]


def test_white_space_contains_no_sentence() -> None:
    assert sentence_spans(" \n\t\n ") == []


def test_a_megabyte_is_cut_into_its_sentences() -> None:
    text = "The quick brown fox jumps over the lazy dog, and then it sleeps for a while. " * 13_000
    assert len(sentence_spans(text)) == 13_000


@pytest.mark.timeout(60)  # in proportion a tenth of a second, squared many minutes
@pytest.mark.parametrize(
    "text",
    [
        "." * 200_000,
        ".*" * 100_000,
        ". " * 100_000,
        " " * 200_000,
        "\n" * 200_000,
        "|\n" * 100_000,
        "```\n" * 50_000,
        "1. A " * 50_000,
        "a. " * 70_000,
    ],
)
def test_no_text_makes_it_slow(text: str) -> None:
    assert all(start < end for start, end in sentence_spans(text))
