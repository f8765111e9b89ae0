"""The program `rag`. It imports the commands inside `main`, so that an interrupt meanwhile prints no traceback."""

import sys

INTERRUPT_EXIT_CODE = 130


def main() -> None:
    try:
        from rag_cli.app import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPT_EXIT_CODE)
    app()


if __name__ == "__main__":
    main()
