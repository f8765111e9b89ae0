"""Office equations as one line: `(a+1)/b`, `x^2`, `x_i`, `sqrt(x)`."""

from rag_core.parsing.safe_xml import Element, elements

MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

_INVISIBLE = dict.fromkeys((0x2061, 0x2062, 0x2063))


def equation(element: Element) -> str:
    return " ".join(_said(element).translate(_INVISIBLE).split())


def _said(element: Element) -> str:
    name = str(element.tag)
    if name == f"{MATH}t":
        return element.text or ""
    if not name.startswith(MATH) or name.endswith("Pr"):
        return ""
    # once a child: an equation nests as deep as its author likes
    said = [(str(child.tag).removeprefix(MATH), _said(child)) for child in elements(element)]
    return _structured(element, dict(said), "".join(text for _, text in said))


def _structured(element: Element, parts: dict[str, str], row: str) -> str:
    """`row` is its parts one after another, which is all that most structures mean."""
    base = parts.get("e", "")
    match str(element.tag).removeprefix(MATH):
        case "f":
            return f"{_grouped(parts.get('num', ''))}/{_grouped(parts.get('den', ''))}"
        case "rad":
            degree = parts.get("deg", "")
            return f"root{_grouped(degree)}({base})" if degree else f"sqrt({base})"
        case "sSup" | "sSub" | "sSubSup" | "limLow":
            return base + _limits(parts)
        case "nary":
            return f"{_sign(element)}{_limits(parts)} {base}"
        case "d":
            return f"({row})"
        case _:
            return row


def _limits(parts: dict[str, str]) -> str:
    below, above = parts.get("sub", "") or parts.get("lim", ""), parts.get("sup", "")
    return (f"_{_grouped(below)}" if below else "") + (f"^{_grouped(above)}" if above else "")


def _sign(element: Element) -> str:
    sign = element.find(f"{MATH}naryPr/{MATH}chr")
    return "∫" if sign is None else sign.get(f"{MATH}val", "")


def _grouped(text: str) -> str:
    return text if len(text) == 1 or text.isalnum() else f"({text})"
