"""Archives, made from the text of their members."""

import io
import tarfile
from collections.abc import Mapping


def tar_bytes(files: Mapping[str, bytes], mode: str = "w", format_: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=format_) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def mbox_bytes(*mails: str) -> bytes:
    return b"".join(f"From ann@example.com Mon Jul 11 12:08:34 2022\n{mail}\n\n".encode() for mail in mails)


def mail(id: str, text: str) -> str:
    return f"Message-ID: <{id}>\nFrom: ann@example.com\nSubject: About {id}\n\n{text}\n"
