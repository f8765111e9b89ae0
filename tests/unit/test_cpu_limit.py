import time

import pytest

from rag_core.cpu_limit import check_cpu, limit_cpu
from rag_core.errors import DocumentError


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        check_cpu()


def test_a_loop_ends_when_its_thread_has_used_the_cpu_time() -> None:
    with pytest.raises(DocumentError) as caught, limit_cpu("split", 0.01):
        spin(1.0)
    assert (caught.value.stage, caught.value.reason) == ("split", "took longer than 0.01 s of CPU time")


def test_without_a_limit_and_after_one_nothing_is_checked() -> None:
    spin(0.02)
    with limit_cpu("scan", 0.0):
        spin(0.02)
    with limit_cpu("scan", 0.01):
        pass
    spin(0.02)
