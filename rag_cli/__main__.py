"""The program `rag`. It imports the commands inside `main`, so that an interrupt meanwhile prints no traceback."""

import os
import signal
import sys

INTERRUPT_EXIT_CODE = 130


def main() -> None:
    try:
        if os.getpid() == 1:  # in a container without an init process, Linux ignores signals that have no handler
            from serve.shape.draining import exit_at_sigterm

            signal.signal(signal.SIGTERM, exit_at_sigterm)
        from rag_cli.app import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPT_EXIT_CODE)
    app()


if __name__ == "__main__":
    main()
