"""Fills the caches that the first search and the first ingestion need: `python -m rag_core.warm_up`."""

import argparse
import time

from rag_core.storage.lexical import scoring, splade_scoring
from rag_core.text.language import identify_language

_ENGLISH = "Signing keys are rotated every ninety days, and the old ones are archived."


def warm_up() -> None:
    """Compiles the loops over posting lists and unpacks the language model.

    Both are cached on disk, beside the package and in `text.language.cache_folder`; where neither is writable, every
    process does the work again.
    """
    scoring.compile_all()
    splade_scoring.compile_all()
    identify_language(_ENGLISH)


def main() -> None:
    """Warms up and prints how long it took, in seconds."""
    argparse.ArgumentParser(
        prog="python -m rag_core.warm_up",
        description="Compile and cache what the first search and the first ingestion need. Run it after installing.",
        epilog="example: pip install -c constraints.txt . && python -m rag_core.warm_up",
    ).parse_args()
    print("compiling the search loops, about 15 seconds", flush=True)
    started = time.monotonic()
    warm_up()
    print(f"done in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
