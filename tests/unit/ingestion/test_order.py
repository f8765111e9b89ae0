from uuid import uuid4

from jobs.ray_runner import split_into_blocks
from rag_core.ingestion.sync import sort_by_file
from rag_core.types import Draft, Entry


def drafts(**sizes: int) -> list[Draft]:
    return [
        Draft(id=uuid4(), source=0, entry=Entry(uri=uri, size=size, modified_ns=0), recipe="")
        for uri, size in sizes.items()
    ]


def uris(ordered: list[Draft]) -> list[str]:
    return [draft.entry.uri for draft in ordered]


def test_members_stay_together_and_the_largest_documents_come_first() -> None:
    mixed = drafts(**{"b.zip!/x": 1, "small": 2, "a.zip!/y": 3, "b.zip!/c.tar!/z": 9, "large": 8})
    assert uris(sort_by_file(mixed)) == ["b.zip!/x", "b.zip!/c.tar!/z", "large", "a.zip!/y", "small"]


def test_a_container_is_in_as_few_blocks_as_possible() -> None:
    mixed = drafts(**{"1": 9, "a.zip!/1": 1, "a.zip!/2": 1, "2": 5, "b.zip!/3": 1, "b.zip!/4": 1, "3": 1})
    blocks = [uris(block) for block in split_into_blocks(mixed, 2)]
    assert blocks == [["1", "3", "a.zip!/1", "a.zip!/2"], ["2", "b.zip!/3", "b.zip!/4"]]


def test_no_block_is_empty() -> None:
    members = drafts(**{f"a.zip!/{number}": 1 for number in range(5)})
    assert [len(block) for block in split_into_blocks(members, 4)] == [2, 2, 1]
