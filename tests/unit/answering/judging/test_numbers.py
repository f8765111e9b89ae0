import pytest

from rag_core.answering.judging.numbers import find_missing_number, find_missing_plain_number, find_numbers


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("It costs 1,000 euros.", "The price is 1000 euros."),
        ("It costs 1000 euros.", "The price is 1\u00a0000 euros."),
        ("It has twelve doors.", "There are 12 doors."),
        ("It has 25 doors.", "There are twenty-five doors."),
        ("About 40 percent left.", "40% left."),
        ("Prices rose by 40%.", "Prices rose by forty per cent."),
        ("The rate is 3.5.", "The rate is 3.50."),
        ("It was the 3rd attempt.", "The third attempt succeeded."),
        ("It cost 1.5 million.", "It cost 1,500,000 dollars."),
        ("It cost 1,500,000 dollars.", "It cost $1.5 million."),
        ("It began on 2022-08-31.", "It began on 31st August 2022."),
        ("It began on August 31, 2022.", "Begin: 2022-08-31"),
        ("It opens at 9:30.", "Opening: 9:30am"),
        ("Revenue was $35.", "Revenue: 35$"),
        ("One of them left first, in a second.", "Some left."),
        ("B12 is a vitamin.", "It is a vitamin."),
        ("No number here.", ""),
    ],
)
def test_a_number_is_held_however_it_is_written(claim: str, text: str) -> None:
    assert find_missing_number(claim, find_numbers(text)) == ""


@pytest.mark.parametrize(
    ("claim", "text", "missing"),
    [
        ("It costs 1,001 euros.", "The price is 1000 euros.", "1,001"),
        ("It has twelve doors.", "There are 11 doors.", "twelve"),
        ("It has two doors and 30 windows.", "It has 2 doors and 31 windows.", "30"),
        ("It cost 1.5 million.", "It cost 1.5 billion.", "1.5 million"),
        ("It began on 2022-09-01.", "It began on 1 August 2022.", "09"),
        ("The rate is 3.5.", "The rate is 35.", "3.5"),
        ("It was the 4th attempt.", "The third attempt succeeded.", "4"),
        ("Version 10 is out.", "", "10"),
    ],
)
def test_a_number_that_is_not_held_is_named_as_it_is_written(claim: str, text: str, missing: str) -> None:
    assert find_missing_number(claim, find_numbers(text)) == missing


@pytest.mark.parametrize(
    ("claim", "text", "missing"),
    [
        ("Die Firma besteht seit 1987.", "The company was founded in 1978.", "1987"),
        ("Die Firma besteht seit 1987.", "The company was founded in 1987.", ""),
        ("It has 1543 doors.", "Es hat 1.543 Türen.", ""),
        ("It has 1543 doors.", "Il a 1 543 portes.", ""),
        ("الباب رقم 154", "\u0661\u0665\u0664", ""),
        ("Es hat 1.543 Türen.", "It has doors.", ""),
        ("Es wiegt 3,5 Kilo und 12 Gramm, also 500 Karat.", "It is heavy.", ""),
    ],
)
def test_across_languages_only_numbers_that_all_write_alike_can_be_missing(claim: str, text: str, missing: str) -> None:
    assert find_missing_plain_number(claim, [text]) == missing
