"""The choice of profiles by detection: for a whole sync, and for single documents.

A profile of single documents only changes how these are split. They are embedded and searched like all others, so its
embedding model must be that of the sync.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from rag_core.config import DocumentProfile, LocalModel, Settings
from rag_core.detection import DEFAULT_PROFILE, Detection
from rag_core.errors import ConfigError, ModelError
from rag_core.models.loading import has_cuda_gpu
from rag_core.wiring.chunking import build_chunker

LoadProfile: TypeAlias = Callable[[str], Settings]
"""Loads a profile with the file, the environment and the overrides of the sync. Raises ConfigError."""

_SPEED_SETTINGS = {"type", "device", "precision", "batch_size", "query_prompt"}
"""Settings of an embedder that do not change the vectors of documents."""
_log = logging.getLogger(__name__)


def find_obstacle(profile: str, load: LoadProfile) -> str:
    """The reason why this machine cannot ingest with the profile, such as no GPU; empty if it can. Loads no model."""
    try:
        settings = load(profile)
        embedding = settings.embedding
        if isinstance(embedding, LocalModel) and embedding.device.startswith("cuda") and not has_cuda_gpu():
            return "no GPU was found"
        build_chunker(settings)
    except (ConfigError, ModelError) as error:
        return str(error)
    return ""


def add_document_profiles(settings: Settings, detection: Detection, load: LoadProfile) -> Settings:
    """Records the profiles that can be detected for single documents.

    Changes nothing if the chunker is not that of the default profile: a chunker that was chosen for the sync applies to
    all its documents. Changes nothing either if an override of the sync does not suit the default profile.
    """
    try:
        has_own_chunker = settings.chunking != load(DEFAULT_PROFILE).chunking
    except ConfigError as error:
        _log.info("no profile is detected for single documents: %s", error)
        return settings
    if has_own_chunker:
        return settings
    profiles: dict[str, DocumentProfile] = {}
    for name, patterns in detection.patterns.items():
        candidates = dict.fromkeys((name, detection.cpu_variants.get(name, name)))
        try:
            fits = (candidate for candidate in candidates if _fits(load(candidate), settings, detection.is_shipped))
            selected = next(fits, "")
        except ConfigError as error:  # an override of the sync does not suit this profile, which nobody named
            _log.info("profile %s is not detected for single documents: %s", name, error)
            continue
        chunking = load(selected).chunking if selected else None
        profiles[selected or name] = DocumentProfile(detect=dict(patterns), chunking=chunking)
    return settings.model_copy(update={"document_profiles": profiles})


def _fits(profile: Settings, settings: Settings, is_shipped: bool) -> bool:
    """True if both embed documents alike. Compares settings, because the model of a profile can be missing here.

    The chunks of a shipped profile must also fit the window of a model that a user chose, if the model is here; a
    user's own profile with too large chunks is an error of `build_sync`.
    """
    model, own_model = (one.embedding.model_dump(exclude=_SPEED_SETTINGS) for one in (settings, profile))
    if model != own_model or not is_shipped:
        return model == own_model
    try:
        build_chunker(profile)
    except ConfigError:
        return False
    except ModelError:  # a gateway needs no model for jobs that run on other machines
        return True
    return True
