"""The program `rag`. It loads everything else itself, so that whoever interrupts it meanwhile sees no traceback."""

import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from rag_cli.app import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    app()


if __name__ == "__main__":
    main()
