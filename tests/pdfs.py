"""Small PDFs, written by hand."""

from collections.abc import Sequence


def pdf(*pages: Sequence[str]) -> bytes:
    """A PDF with one page per list of lines, in 12 point Helvetica."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, lines in enumerate(pages):
        operators = "".join(f"1 0 0 1 72 {600 - 16 * row} Tm ({line}) Tj " for row, line in enumerate(lines))
        content = f"BT /F1 12 Tf {operators}ET"
        place = "/Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page {place} /Contents {5 + 2 * i} 0 R >>",
            f"<< /Length {len(content)} >> stream\n{content}\nendstream",
        ]
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj {content} endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return f"{body}{head}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF".encode()
