"""The program `rag`. It imports the commands inside `main`, so that an interrupt meanwhile prints no traceback."""

import os
import signal
import sys
from typing import NoReturn

INTERRUPT_EXIT_CODE = 130


def main() -> None:
    if os.getpid() == 1:  # in a container without an init process, where Linux ignores signals that have no handler
        signal.signal(signal.SIGTERM, exit_at_signal)
    try:
        from rag_cli.app import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPT_EXIT_CODE)
    app()


def exit_at_signal(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
