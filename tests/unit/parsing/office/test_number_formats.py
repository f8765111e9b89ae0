import pytest

from rag_core.parsing.office.numbers import apply_format


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("0.125", "0%", "12%"),
        ("-0.12345", "0.0%;[Red]-0.0%", "-12.3%"),
        ("7", '0" %"', "7"),
        ("1230", "00000", "01230"),
        ("-7", "000", "-007"),
        ("1230.5", "00000", "1230.5"),
        ("4.4000000000000004", "General", "4.4"),
        ("45292", "Standard", "45292"),
        ("45292", "[$-409]d\\-mmm\\-yy;@", "2024-01-01"),
        ("7", '0" days"', "7"),
        ("1e300", "yyyy", "1e300"),
        ("Q1", "0%", "Q1"),
    ],
)
def test_a_number_is_shown_in_its_format(text: str, code: str, expected: str) -> None:
    assert apply_format(text, code) == expected
