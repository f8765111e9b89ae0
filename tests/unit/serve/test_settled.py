import gc
import weakref
from collections.abc import Iterator

import pytest

from serve.settled import settle


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class Cyclic:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_looked_through_no_more() -> None:
    model = Cyclic()
    settle()
    assert gc.is_tracked(model)
    assert all(each is not model for each in gc.get_objects())


def test_garbage_is_freed_also_if_it_was_loaded_before() -> None:
    model = Cyclic()
    known = weakref.ref(model)
    settle()
    del model
    gc.collect()
    assert known() is not None
    settle()
    assert known() is None
