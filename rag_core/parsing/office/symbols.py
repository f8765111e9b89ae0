"""Characters of the fonts Symbol and Wingdings, which number their signs by position on the keyboard."""

_LATIN = "ABGDEZHQIKLMNXOPRSTUFCYWabgdezhqiklmnxoprstufcywJVj"
_GREEK = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩαβγδεζηθικλμνξοπρστυφχψωϑςϕ"
_SIGNS = {
    **{0xA3: "\u2264", 0xB3: "\u2265", 0xB1: "\u00b1", 0xB4: "\u00d7", 0xB0: "\u00b0", 0xB7: "\u2022"},
    **{0xA5: "\u221e", 0xB9: "\u2260", 0xBB: "\u2248", 0xBA: "\u2261", 0xAE: "\u2192", 0xDE: "\u21d2"},
    **{0xAC: "\u2190", 0xAB: "\u2194", 0xD6: "\u221a", 0xD7: "\u22c5", 0xE5: "\u2211", 0xB6: "\u2202"},
    **{0xF2: "\u222b", 0x2D: "\u2212"},
}
_SYMBOL_FONT = {**dict(zip(map(ord, _LATIN), _GREEK, strict=True)), **_SIGNS}
_WINGDINGS_FONT = {0xA8: "☐", 0xFE: "☑", 0xFD: "☒", 0x6F: "☐", 0x78: "☒", 0xFC: "✓", 0xFB: "✗", 0xE0: "→"}
_PRIVATE_USE = range(0xF000, 0xF100)
"""The code points under which Word stores the 256 positions of a symbol font."""


def symbol_character(font: str, code: int) -> str:
    """The Unicode character of a font's sign; empty for a picture that has no such character."""
    position = code & 0xFF if code in _PRIVATE_USE else code
    if not 0x20 <= position < 0xD800:
        return ""
    if font.lower().startswith("symbol"):
        return _SYMBOL_FONT.get(position, chr(position))
    if font.lower().startswith("wingdings") or code in _PRIVATE_USE:
        return _WINGDINGS_FONT.get(position, "")
    return chr(position)
