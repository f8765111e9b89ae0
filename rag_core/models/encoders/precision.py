"""The number format that a model computes in."""

from typing import Literal

import torch


def choose_dtype(precision: Literal["auto", "bf16", "fp32"], device: str = "cpu") -> torch.dtype:
    """The type for a precision. `auto` is bf16 if the hardware multiplies it, else fp32: emulated bf16 is slower."""
    if precision == "auto":
        precision = "bf16" if has_fast_bf16(device) else "fp32"
    return torch.bfloat16 if precision == "bf16" else torch.float32


def has_fast_bf16(device: str) -> bool:
    """True if the device multiplies bf16 in hardware."""
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
