"""The names of containers: files whose members are documents of their own."""

CONTAINERS = {
    ".zip": ("zip", ""),
    ".tar": ("tar", ""),
    ".mbox": ("mbox", ""),
    ".tgz": ("tar", "gz"),
    ".tbz2": ("tar", "bz2"),
    ".txz": ("tar", "xz"),
    ".7z": ("tar", "7z"),
    **{
        f".{format_}.{compression}": (format_, compression)
        for format_ in ("tar", "mbox")
        for compression in ("gz", "bz2", "xz")
    },
}
"""The format and the compression of containers, by suffix. A 7z archive is converted to a tar archive."""
_SUFFIXES = tuple(CONTAINERS)


def container_suffix(uri: str) -> str:
    """The suffix in lower case if it is that of a container, else empty."""
    lower = uri.lower()
    return next((suffix for suffix in _SUFFIXES if lower.endswith(suffix)), "") if lower.endswith(_SUFFIXES) else ""
