"""Work in the background: when it is done, and that nothing waits for it for long."""

from threading import Event

from waiting import wait_until

from rag_core.ingestion.background import repeat_in_background


def test_it_is_done_again_and_again_until_the_block_ends() -> None:
    times: list[int] = []
    with repeat_in_background(lambda: times.append(1), first_wait=0.001, join_timeout=60):
        wait_until(lambda: len(times) > 3)
    count = len(times)
    assert not Event().wait(0.1)
    assert len(times) == count


def test_a_short_block_goes_without() -> None:
    times: list[int] = []
    with repeat_in_background(lambda: times.append(1), first_wait=60, join_timeout=60):
        pass
    assert times == []


def test_work_that_hangs_is_abandoned() -> None:
    begun, release = Event(), Event()

    def hang() -> None:
        begun.set()
        release.wait()

    with repeat_in_background(hang, first_wait=0.001, join_timeout=0.01):
        assert begun.wait(60)
    assert not release.is_set()
    release.set()
