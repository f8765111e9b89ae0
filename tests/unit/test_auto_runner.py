from typing import NamedTuple

import pytest

from jobs.ingest import AutoRunner
from jobs.ray_runner import UNLIMITED, Resources
from rag_core.settings import load_settings


class Entry(NamedTuple):
    size: int


class Waiting(NamedTuple):
    entry: Entry


SETTINGS = load_settings(environment={})


def waiting(documents: int, size: int = 1_000) -> list[Waiting]:
    return [Waiting(Entry(size))] * documents


def fits_inline(documents: list[Waiting], resources: Resources = UNLIMITED) -> bool:
    return AutoRunner(SETTINGS, resources).fits_inline(documents)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_ray_is_started_where_its_start_pays() -> None:
    assert fits_inline(waiting(9_999))
    assert not fits_inline(waiting(10_000))
    assert not fits_inline(waiting(10, size=3_200_000))


def test_a_cluster_that_waits_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert fits_inline(waiting(63))
    assert not fits_inline(waiting(64))
    assert not fits_inline(waiting(10, size=100_000))


def test_who_names_resources_means_ray() -> None:
    assert fits_inline(waiting(63), Resources(gpus=1))
    assert not fits_inline(waiting(64), Resources(gpus=1))
