"""Office equations as one line: `(a+1)/b`, `x^2`, `x_i`, `sqrt(x)`."""

from collections.abc import Mapping

from rag_core.parsing.safe_xml import Element, child_elements

MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"

_INVISIBLE_OPERATORS = dict.fromkeys((0x2061, 0x2062, 0x2063))


def equation_text(element: Element) -> str:
    return " ".join(_math_text(element).translate(_INVISIBLE_OPERATORS).split())


def _math_text(element: Element) -> str:
    name = str(element.tag)
    if name == f"{MATH}t":
        return element.text or ""
    if not name.startswith(MATH) or name.endswith("Pr"):
        return ""
    # Each child is read once: twice would double the time at each level, and a document can nest hundreds
    children = [(str(child.tag).removeprefix(MATH), _math_text(child)) for child in child_elements(element)]
    parts, row = dict(children), "".join(text for _, text in children)
    base = parts.get("e", "")
    match name.removeprefix(MATH):
        case "f":
            return f"{_parenthesize(parts.get('num', ''))}/{_parenthesize(parts.get('den', ''))}"
        case "rad":
            degree = parts.get("deg", "")
            return f"root{_parenthesize(degree)}({base})" if degree else f"sqrt({base})"
        case "sSup" | "sSub" | "sSubSup" | "limLow":
            return base + _sub_and_superscript(parts)
        case "nary":
            operator = element.find(f"{MATH}naryPr/{MATH}chr")
            sign = "∫" if operator is None else operator.get(f"{MATH}val", "")
            return f"{sign}{_sub_and_superscript(parts)} {base}"
        case "d":
            return f"({row})"
        case _:
            return row


def _sub_and_superscript(parts: Mapping[str, str]) -> str:
    below, above = parts.get("sub", "") or parts.get("lim", ""), parts.get("sup", "")
    return (f"_{_parenthesize(below)}" if below else "") + (f"^{_parenthesize(above)}" if above else "")


def _parenthesize(text: str) -> str:
    return text if len(text) == 1 or text.isalnum() else f"({text})"
