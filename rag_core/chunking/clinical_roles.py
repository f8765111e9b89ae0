"""The clinical roles of sections in trials and drug labels, by their headings."""

import re
from collections.abc import Mapping, Sequence

ROLES: Mapping[str, tuple[str, ...]] = {
    "title": ("title", "official title", "brief title", "study title"),
    "brief_summary": ("brief summary", "summary", "abstract", "highlights", "highlights of prescribing information"),
    "detailed_description": ("detailed description", "description", "background", "rationale"),
    "eligibility": (
        *("eligibility", "eligibility criteria", "inclusion and exclusion criteria", "inclusion/exclusion criteria"),
        *("study population", "participants"),
    ),
    "inclusion": ("inclusion", "inclusion criteria", "key inclusion criteria"),
    "exclusion": ("exclusion", "exclusion criteria", "key exclusion criteria"),
    "arms": ("arms and interventions", "arms", "arm", "arm groups", "study arms", "groups and cohorts"),
    "interventions": ("interventions", "intervention", "treatments", "treatment"),
    "outcomes": (
        *("outcomes", "outcome measures", "primary outcome", "primary outcomes", "primary outcome measures"),
        *("secondary outcome", "secondary outcomes", "secondary outcome measures", "other outcome measures"),
        *("endpoints", "primary endpoint", "primary endpoints", "secondary endpoints"),
    ),
    "adverse_events": (
        *("adverse events", "serious adverse events", "other adverse events", "adverse reactions", "adverse effects"),
        *("side effects", "undesirable effects"),
    ),
    "boxed_warning": ("boxed warning", "black box warning"),
    "contraindications": ("contraindications", "contraindication"),
    "indications": ("indications and usage", "indications", "indication", "therapeutic indications"),
    "warnings": ("warnings and precautions", "warnings", "warning", "precautions"),
    "interactions": ("drug interactions", "interactions"),
    "populations": ("use in specific populations", "pregnancy", "lactation", "pediatric use", "geriatric use"),
    "overdosage": ("overdosage", "overdose"),
    "dosage_forms": ("dosage forms and strengths", "dosage forms"),
    "dosage": ("dosage and administration", "dosage", "posology"),
    "pharmacology": ("clinical pharmacology", "mechanism of action", "pharmacokinetics", "pharmacodynamics"),
    "studies": ("clinical studies", "results"),
    "supply": ("how supplied", "how supplied/storage and handling", "package label", "storage and handling"),
    "counseling": ("patient counseling information", "information for patients", "medication guide"),
}
"""The roles and the headings that open them, in lower case. More text can follow a colon, a bracket or a dash."""

OTHER = "other"

_ROLES_BY_HEADING = {heading: role for role, headings in ROLES.items() for heading in headings}
_LONGEST_FIRST = sorted(_ROLES_BY_HEADING, key=len, reverse=True)
_OPENING = re.compile(rf"(?:{'|'.join(map(re.escape, _LONGEST_FIRST))})(?=\s*(?:$|[:(/,\u2013\u2014-]))")
_NUMBER = re.compile(r"^(?:section\s+)?[\d.]+\s*[:)]?\s*")


def role_of(path: Sequence[str]) -> str:
    """The role of the innermost heading that has one; OTHER if none has."""
    for heading in reversed(path):
        if match := _OPENING.match(_normalize_heading(heading)):
            return _ROLES_BY_HEADING[match[0]]
    return OTHER


def is_role_heading(label: str) -> bool:
    """True if the label is the heading of a role, without further text."""
    return _normalize_heading(label) in _ROLES_BY_HEADING


def _normalize_heading(heading: str) -> str:
    return _NUMBER.sub("", " ".join(heading.lower().split())).strip(" :.-")
