"""What a replica has loaded by the time it serves stays, until its settings change."""

import gc


def settle() -> None:
    """Spares the garbage collector all that is there now: with a model it takes 200 ms to look through it, in which
    nothing is answered. Serve does so when a replica starts. Called again, it frees first what is garbage by now."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
