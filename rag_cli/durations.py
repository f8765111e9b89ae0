"""Durations on the command line, such as `90d`."""

import re

from rag_core.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DAYS = 3650


def parse_duration(text: str) -> float:
    """The duration in seconds. Raises UsageError if the text is not a positive number with a unit."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    seconds = int(match[1]) * UNITS[match[2]] if match else 0
    if not 0 < seconds <= MAX_DAYS * UNITS["d"]:
        raise UsageError(
            f"a duration must be a number with s, m, h or d, such as 90d, and at most {MAX_DAYS}d, got {text!r:.40}"
        )
    return seconds
