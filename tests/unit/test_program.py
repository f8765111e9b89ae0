"""The program `rag`, before it has loaded anything."""

import signal
import sys
from types import SimpleNamespace

import pytest
from commands import rag_in_process

from rag_cli.__main__ import main
from rag_core import __version__


class Interrupting:
    """Interrupts like a user who presses Ctrl-C while modules are loaded."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == "rag_cli.app":
            raise KeyboardInterrupt


def test_an_interrupt_while_it_loads_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "rag_cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_as_the_first_process_of_a_container_it_ends_at_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cli.__main__.os", SimpleNamespace(getpid=lambda: 1))
    monkeypatch.setattr(sys, "argv", ["rag", "--version"])
    former = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="0"):
            main()
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)


def test_it_prints_its_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert rag_in_process(capfd)("--version").out == f"rag-on-ray {__version__}\n"
