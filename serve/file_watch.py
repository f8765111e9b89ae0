"""Notices that a settings file has changed."""

from hashlib import blake2b
from pathlib import Path

POLL_SECONDS = 1.0
"""Seconds between two looks at a file. Notifications of the kernel miss files that Kubernetes mounts as links."""


class FileWatch:
    """Compares a file with the content of `digest`, and then with the last content that it reported.

    A file that is missing or empty counts as unchanged, because editors and deployments replace files.
    """

    def __init__(self, file: Path, digest: str) -> None:
        self._file, self._reported, self._seen = file, digest, digest

    def has_changed(self) -> bool:
        """True if the content is new, and equal to that of the previous call, so that no editor is still writing it.

        Each change is reported once.
        """
        digest = hash_file(self._file)
        is_stable, self._seen = digest == self._seen, digest
        if not digest or digest == self._reported or not is_stable:
            return False
        self._reported = digest
        return True


def hash_file(file: Path) -> str:
    """A hash of the content; empty if the file is empty or cannot be read."""
    try:
        content = file.read_bytes()
    except OSError:
        return ""
    return blake2b(content, digest_size=16).hexdigest() if content else ""
