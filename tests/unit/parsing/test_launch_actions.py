import pytest

from rag_core.parsing.scan import scan
from rag_core.types import Document


def is_quarantined(action: bytes) -> bool:
    pdf = Document(uri="file:///a.pdf", text="text", media_type="application/pdf")
    findings = scan("file:///a.pdf", b"%PDF-1.7\n4 0 obj\n" + action + b"\nendobj", pdf)
    return [(finding.flag, finding.severity) for finding in findings] == [("active-content", "quarantine")]


@pytest.mark.parametrize(
    "action",
    [
        b"<< /S /Launch /F (chapters/two.pdf) /NewWindow true >>",
        b"<< /Type /Action /S /Launch /F << /Type /Filespec /F (report.DOC) /UF (report.DOC) >> >>",
        b"<< /A << /F (C:\\\\data\\\\table.xlsx) /S /Launch >> >>",
        b"(See /Launch in the manual)",
    ],
)
def test_an_action_that_opens_a_document_is_not_a_program(action: bytes) -> None:
    assert not is_quarantined(action)


@pytest.mark.parametrize(
    "action",
    [
        b"<< /S /Launch /F (cmd.exe) >>",
        b"<< /S /Launch /F (run.bat) /UF (two.pdf) >>",
        b"<< /S /Launch /Win << /F (two.pdf) /P (/c calc) >> >>",
        b"<< /S /Launch /F 12 0 R >>",
        b"<< /S /Launch /F (two.pdf) /F 12 0 R >>",
        b"<< /S /Launch >>",
        b"<< /S /Launch /F (program) >>",
        b"<< /S /Launch /F (http://host/two.pdf) >>",
        b"<< /S /Launch /F (a.exe\\000.pdf) >>",
        b"<< /S /Launch /#46 (a.exe) /F (two.pdf) >>",
        b"<< /F (a.exe) /X (<< /F (two.pdf) ) /S /Launch /Y (>>) >>",
        b"<< /F (a.exe) % << /F (two.pdf)\n /S /Launch >>",
        b"/S /Launch /F (two.pdf)",
    ],
)
def test_an_action_with_another_target_or_an_unclear_one_is_quarantined(action: bytes) -> None:
    assert is_quarantined(action)
