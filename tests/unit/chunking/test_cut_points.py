import pytest

from rag_core.chunking.cut_points import fitting_end


@pytest.mark.parametrize(
    ("ends", "tokens", "end"),
    [
        ([2, 4, 6], 2, 4),
        ([2, 4, 6], 3, 6),
        ([2, 4, 4, 4, 6], 2, 2),  # the syllable 랭 is three tokens of BERT's vocabulary
        ([2, 4, 4, 4, 6], 3, 2),
        ([2, 4, 4, 4, 6], 4, 4),
        ([1, 1, 2], 1, 1),  # a chunk has at least one character
    ],
)
def test_a_character_of_several_tokens_is_not_cut_and_not_counted_in_part(
    ends: list[int], tokens: int, end: int
) -> None:
    assert fitting_end("x" * ends[-1], ends, tokens) == end
