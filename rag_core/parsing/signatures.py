"""Names of binary content by its signature, such as the first bytes of a PNG image.

A table of our own: libraries for this match texts, too (one that begins with BM is a bitmap to them), and miss Parquet.
The VERSION of `detection` covers this module.
"""

import re

BINARY = "binary content"
"""The name of binary content without a known signature."""

_BOX = rb"....ftyp"  # a file of MPEG-4 boxes; its brand follows
_SIGNATURES = (
    (rb"\x89PNG\r\n", "a PNG image"),
    (rb"\xff\xd8\xff", "a JPEG image"),
    (rb"GIF8[79]a", "a GIF image"),
    (rb"II\*\0|MM\0\*|II\+\0|MM\0\+", "a TIFF image"),
    (rb"RIFF....WEBP", "a WebP image"),
    (rb"BM....\0\0", "a BMP image"),
    (rb"\0\0[\x01\x02]\0", "an icon"),
    (_BOX + rb"(?:heic|heix|hevc|mif1|msf1)", "a HEIC image"),
    (_BOX + rb"avi[fs]", "an AVIF image"),
    (rb"\0\0\0\x0cjP  \r\n|\xff\x4f\xff\x51", "a JPEG 2000 image"),
    (rb"8BPS", "a Photoshop image"),
    (rb"\xd7\xcd\xc6\x9a", "a WMF drawing"),
    (rb"\x01\0\0\0.{36} EMF", "an EMF drawing"),
    (rb".{128}DICM", "a DICOM image"),
    (rb"AC10\d\d", "an AutoCAD drawing"),
    (_BOX + rb"(?:M4A|M4B)|ID3[\x02-\x04]|\xff[\xe3\xf2\xf3\xfa\xfb]", "MP3 or MPEG-4 audio"),
    (_BOX + rb"qt  |....(?:moov|mdat)", "a QuickTime video"),
    (_BOX, "an MPEG-4 video"),
    (rb"RIFF....WAVE", "WAV audio"),
    (rb"RIFF....AVI ", "an AVI video"),
    (rb"OggS", "Ogg audio or video"),
    (rb"fLaC", "FLAC audio"),
    (rb"FORM....AIF[FC]", "AIFF audio"),
    (rb"MThd", "MIDI music"),
    (rb"#!AMR", "AMR audio"),
    (rb"\xff[\xf1\xf9]", "AAC audio"),
    (rb"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (rb"0&\xb2u\x8ef\xcf\x11", "a Windows Media file"),
    (rb"\0\0\x01[\xb3\xba]|G.{187}G", "an MPEG video"),
    (rb"FLV\x01", "a Flash video"),
    (rb"[FCZ]WS[\x01-\x30]", "a Flash animation"),
    (rb"wOF[F2]", "a web font (WOFF)"),
    (rb"\0\x01\0\0\0|true\0|OTTO\0|ttcf", "a font"),
    (rb"PK\x03\x04|PK\x05\x06\0\0", "a ZIP archive"),
    (rb"\x1f\x8b", "a gzip archive"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 archive"),
    (rb"\xfd7zXZ\0", "an xz archive"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (rb"Rar!\x1a\x07", "a RAR archive"),
    (rb"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (rb"\x04\x22\x4d\x18", "an LZ4 archive"),
    (rb"\x1f[\x9d\xa0]", "a compress archive (.Z)"),
    (rb"MSCF\0", "a cabinet archive"),
    (rb"\xed\xab\xee\xdb", "an RPM package"),
    (rb"!<arch>\n", "an ar archive or Debian package"),
    (rb".{257}ustar", "a tar archive"),
    (rb".{32769}CD001", "a CD image (ISO 9660)"),
    (rb"SQLite format 3\0", "an SQLite database"),
    (rb"\0\x01\0\0Standard (?:Jet|ACE) DB", "an Access database"),
    (rb"!BDN", "an Outlook mailbox (PST)"),
    (rb"PAR1", "a Parquet file"),
    (rb"ARROW1\0\0|\xff\xff\xff\xff.{3}\0", "an Arrow file"),
    (rb"Obj\x01", "an Avro file"),
    (rb"ORC", "an ORC file"),
    (rb"\x89HDF\r\n", "an HDF5 file"),
    (rb"CDF[\x01\x02\x05]", "a NetCDF file"),
    (rb"\x93NUMPY", "a NumPy array"),
    (rb"GGUF", "model weights (GGUF)"),
    (rb"\x80[\x02-\x05][^\0-\x0c\x0e-\x1f]", "a Python pickle"),
    (rb"\x7fELF", "a Linux program"),
    (rb"MZ", "a Windows program"),
    (rb"\xca\xfe\xba\xbe\0\0\0[\x2d-\x60]", "a Java class"),
    (rb"\xca\xfe\xba\xbe|[\xce\xcf]\xfa\xed\xfe|\xfe\xed\xfa[\xce\xcf]", "a macOS program"),
    (rb"\0asm", "a WebAssembly program"),
    (rb"..\r\n.{12}[\xe3\x63]", "Python bytecode"),
    (rb"dex\n\d\d\d\0", "an Android program"),
    (rb"%!PS|\xc5\xd0\xd3\xc6", "PostScript"),
    (rb"\xf7\x02", "a DVI file"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an OLE file of an unknown program"),
    (rb"bplist0", "a binary property list"),
    (rb"L\0\0\0\x01\x14\x02\0", "a Windows shortcut"),
    (rb"\xffWPC", "a WordPerfect document"),
    (rb".{60}BOOKMOBI", "a Mobipocket book"),
    (rb"ITSF\x03", "compiled HTML help (CHM)"),
    (rb"AT&TFORM", "a DjVu document"),
)


def name_binary(body: bytes) -> str:
    """What the signature says of bytes that are not text, with its article: `a PNG image`."""
    return next((name for pattern, name in _SIGNATURES if re.match(pattern, body, re.DOTALL)), BINARY)
