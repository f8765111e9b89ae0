"""A pytest plugin: the CPU time of each test, and the slowest tests at the end of a run.

The time is that of the test's own process and of the child processes that ended meanwhile. It does not depend on what
else the machine is doing, so it shows what a test costs on every machine.
"""

import os
from collections.abc import Iterator

import pytest

SLOWEST = 25
FEW_TESTS = 100
"""A run of fewer tests prints no ranking."""
UNMARKED_SECONDS = 2.0
"""CPU-seconds above which a test must be marked `slow`, `ray` or `model`."""
MARKS = frozenset({"slow", "ray", "model", "chaos", "vllm"})
PROPERTY, MARKED = "cpu_seconds", "is_marked"


class CpuTime:
    """Collects the reports of all workers and prints the slowest tests."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._unmarked: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fixtures are left out: the first test that uses a shared one would pay for all."""
        started = _cpu_seconds()
        try:
            return (yield)
        finally:
            item.user_properties.append((PROPERTY, _cpu_seconds() - started))
            item.user_properties.append((MARKED, any(mark.name in MARKS for mark in item.iter_markers())))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if report.when != "call" or PROPERTY not in properties:
            return
        seconds = self._seconds[report.nodeid] = float(str(properties[PROPERTY]))
        if seconds > UNMARKED_SECONDS and not properties[MARKED]:
            self._unmarked[report.nodeid] = seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._seconds) < FEW_TESTS:
            return
        ranking = sorted(self._seconds.items(), key=lambda row: -row[1])[:SLOWEST]
        terminalreporter.section(f"slowest {SLOWEST} of {len(self._seconds)} tests, CPU seconds")
        for name, seconds in ranking:
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
        for name, seconds in self._unmarked.items():
            terminalreporter.write_line(f"above {UNMARKED_SECONDS:g} s and not marked slow: {name} ({seconds:.2f})")


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
