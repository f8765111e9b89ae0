import unicodedata

import pytest

from rag_core.text import analysis
from rag_core.text.analysis import MAX_TERM_LENGTH, Word, analyze_question, terms


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("The running dogs", "en", ["run", "dog"]),
        ("Die laufenden Hunde", "de", ["laufend", "hund"]),
        ("The running dogs", "xx", ["the", "running", "dogs"]),
        ("The running dogs", "", ["the", "running", "dogs"]),
        ("rotate_keys(v2.5)", "en", ["rotat", "key", "v2", "5"]),
        ("don't", "en", ["don"]),
        ("l'homme qu'elle aime", "fr", ["homm", "aim"]),
        ("ŁÓDŹ", "xx", ["łódź"]),
        ("", "en", []),
        (" ... — ...", "en", []),
    ],
)
def test_words_are_lower_cased_and_stemmed_in_their_language_without_its_stop_words(
    text: str, language: str, expected: list[str]
) -> None:
    assert terms(text, language) == expected


def test_a_term_that_is_repeated_counts_each_time() -> None:
    assert terms("key, keys and KEYS", "en") == ["key", "key", "key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都", ["東京", "京都"]),
        ("東", ["東"]),
        ("タワー。東京", ["タワ", "ワー", "東京"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("한국어", ["한국", "국어"]),
        ("GPU手机 15", ["gpu", "手机", "15"]),
        ("ﾀﾜｰ", ["タワ", "ワー"]),
    ],
)
@pytest.mark.parametrize("language", ["ja", "en", ""])
def test_scripts_without_spaces_become_pairs_of_characters_in_any_language(
    text: str, expected: list[str], language: str
) -> None:
    assert terms(text, language) == expected


def test_a_mark_belongs_to_its_word() -> None:
    assert terms("हिन्दी भाषा", "xx") == ["हिन्दी", "भाषा"]


def test_composed_and_decomposed_letters_are_the_same() -> None:
    assert terms("naïve café", "en") == terms(unicodedata.normalize("NFD", "naïve café"), "en") == ["naïv", "café"]


def test_one_letter_that_is_not_ascii_changes_no_other_word() -> None:
    text = "Retrieval of rotated keys, v2.5 and don't"
    assert terms(f"{text} é", "en") == [*terms(text, "en"), "é"]


@pytest.mark.parametrize("language", ["en", "xx"])
def test_the_first_characters_of_a_long_word_are_the_term(language: str) -> None:
    assert terms("x" * 1000, language) == ["x" * MAX_TERM_LENGTH]


@pytest.mark.parametrize("language", ["en", ""])
def test_a_long_word_is_not_cached(language: str) -> None:
    terms("y" * 1000 + " kept", language)
    assert "kept" in analysis._stems(language)
    assert max(map(len, analysis._stems(language))) <= MAX_TERM_LENGTH


@pytest.mark.parametrize("sign", ["\u00ad", "\u2060", "\ufeff", "\ufe0f", "\U000e0100"])
def test_invisible_characters_are_not_part_of_a_word(sign: str) -> None:
    assert terms(f"Donau{sign}dampf", "de") == terms("Donaudampf", "de") == ["donaudampf"]
    assert terms(f"東{sign}京{sign} Do{sign}nau", "ja") == ["東京", "donau"]
    assert terms(f"a {sign} b", "xx") == ["a", "b"]


def test_a_zero_width_space_ends_a_word() -> None:
    assert terms("Donau\u200bdampf", "xx") == ["donau", "dampf"]
    assert terms("ភា\u200bសា", "km") == ["ភា", "សា"]


@pytest.mark.parametrize("language", ["tr", "en", "xx"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_capital_i_with_a_dot_is_an_i(language: str, form: str) -> None:
    assert terms(unicodedata.normalize(form, "İZMİR"), language) == terms("izmir", language)


def test_a_capital_i_without_a_dot_is_lower_cased_as_its_language_does() -> None:
    assert terms("ISPARTA", "tr") == terms("ısparta", "tr") != terms("isparta", "tr")  # noqa: RUF001
    assert terms("BAKI", "az") == ["bakı"]  # noqa: RUF001
    assert terms("BAKI", "en") == terms("baki", "en")


def test_a_question_is_read_in_every_language_and_counts_a_word_once_where_they_agree() -> None:
    assert analyze_question("running dogs, running", ["en"]).counts == {"run": 2, "dog": 1}
    assert analyze_question("running dogs", ["de", "en"]).counts == {"running": 1, "run": 1, "dog": 1}
    assert analyze_question("Tokio 東京", ["de", "en"]).counts == {"tokio": 1, "東京": 1}


def test_a_question_has_the_terms_of_its_words_and_the_languages_of_stop_words() -> None:
    words = (Word(("run", "running"), ()), Word(("the",), ("en",)), Word(("東京",), ()))
    assert analyze_question("running, the 東京 running", ["de", "en"]).words == words


def test_a_question_of_stop_words_alone_has_no_terms() -> None:
    assert analyze_question("what is it?", ["en"]).counts == {}


def test_a_question_in_no_language_has_no_terms() -> None:
    assert analyze_question("anything", []).counts == {}
