"""Small OLE2 compound files like those of old Office programs: 512-byte sectors, every stream in the mini stream."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
SECTOR, MINI = 512, 64
STORAGE, STREAM, ROOT = 1, 2, 5


@dataclass
class _Entry:
    name: str
    kind: int
    content: bytes = b""
    children: list[int] = field(default_factory=list)
    right: int = FREE


def compound(streams: Mapping[str, bytes]) -> bytes:
    """A compound file of these streams. Keys are paths such as `folder/stream`. Streams have less than 4096 bytes."""
    entries = _entries(streams)
    mini, mini_fat, starts = bytearray(), [], {}
    for number, entry in enumerate(entries):
        if entry.kind == STREAM and entry.content:
            first, sectors = len(mini) // MINI, -(-len(entry.content) // MINI)
            starts[number] = first
            mini += entry.content.ljust(sectors * MINI, b"\0")
            mini_fat += [*range(first + 1, first + sectors), END]
    directory = b"".join(_directory(entry, starts.get(number, END)) for number, entry in enumerate(entries))
    parts = [_pad(directory), _pad(bytes(mini)), _pad(struct.pack(f"<{len(mini_fat)}I", *mini_fat), b"\xff")]
    fat, firsts = [FAT], []
    for part in parts:
        firsts.append(len(fat) if part else END)
        fat += [*range(len(fat) + 1, len(fat) + len(part) // SECTOR), END] if part else []
    assert len(fat) <= SECTOR // 4
    table = struct.pack("<128I", *fat, *[FREE] * (128 - len(fat)))
    directory_with_root = _with_root(parts[0], firsts[1], len(mini))
    header = struct.pack(
        "<8s16sHHHHH6xIIIIIIIII109I",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        b"",
        *(0x3E, 3, 0xFFFE, 9, 6),
        *(0, 1, firsts[0], 0, 0x1000, firsts[2], len(parts[2]) // SECTOR, END, 0),
        *(0, *[FREE] * 108),
    )
    return header + table + directory_with_root + parts[1] + parts[2]


def _entries(streams: Mapping[str, bytes]) -> list[_Entry]:
    entries = [_Entry("Root Entry", ROOT)]
    folders: dict[str, int] = {}
    for path, content in streams.items():
        folder, _, name = path.rpartition("/")
        if folder and folder not in folders:
            folders[folder] = len(entries)
            entries[0].children.append(len(entries))
            entries.append(_Entry(folder, STORAGE))
        entries[folders.get(folder, 0)].children.append(len(entries))
        entries.append(_Entry(name, STREAM, content))
    for entry in entries:
        for child, following in zip(entry.children, entry.children[1:], strict=False):
            entries[child].right = following
    return entries


def _directory(entry: _Entry, start: int) -> bytes:
    name = entry.name.encode("utf-16-le") + b"\0\0"
    child = entry.children[0] if entry.children else FREE
    size = len(entry.content)
    return struct.pack(
        "<64sHBBIII16sIQQIQ", name, len(name), entry.kind, 1, FREE, entry.right, child, b"", 0, 0, 0, start, size
    )


def _with_root(directory: bytes, start: int, size: int) -> bytes:
    return directory[:116] + struct.pack("<IQ", start, size) + directory[128:]


def _pad(content: bytes, fill: bytes = b"\0") -> bytes:
    return content.ljust(-(-len(content) // SECTOR) * SECTOR, fill)
