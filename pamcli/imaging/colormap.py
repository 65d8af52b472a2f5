"""Colour disparity maps from far (dark blue) over green to near (bright yellow).

The colours run in OKLCH (lightness, chroma, hue) from (0.32, 0.15, 300 degrees) to (0.95, 0.14, 105), within
the screen's gamut, in perceptually equal steps. Lightness increases monotonically, so the order of
disparities survives greyscale prints and colour blindness. The far end is not black, which stands for
unknown.
"""

import base64
import math
from functools import cache

import numpy as np

from pamcli.errors import UsageError
from pamcli.imaging.raster import check_map
from pamcli.validation import check_arguments

_TABLE = (
    "QRFyQRJzQRR0QRV1QBd2QBh4QBl5QBp6QBx7Px18Px5+Px9/PyGAPiKBPiOCPiSDPSWEPSeFPSiHPCmIPCqJOyuKOyyLOy6MOi+NOjCO"
    "OTGPODKQODORNzSSNzaTNjeUNTiVNTmVNDqWMzuXMjyYMT6ZMT+aMECbL0GbLkKcLUOdLESeK0afKUefKEigJ0mhJUqiJEuiIkyjIU6k"
    "H0+kHVClG1GmGVKmF1OnFFSoEVaoDlepCVipBFmqAFqqAFuqAFypAF2oAF6oAF+nAGCnAGGmAGKmAGOmAGSlAGWlAGalAGekAGikAGmk"
    "AGqkAGukAGyjAG2jAG6jAG+jAHCjAHGjAHKjAHOjAHWjAHajAHejAHijAHmjAHqjAHujAHyjAH2jAH6kAH+kAICkAIGkAIKkAIOkAISk"
    "AIWkAIalAIelAIilAImlAIqlAIulAIylAI2lAI6mAI+mAJCmAJKmAJOmAJSmAJWmAJamAJenAJinAJmnAJqnAJunAJynAJ2nAJ6nAJ+n"
    "AKCnAKGnAKKnAKOnAKSnAKWnAKanAKenAKinAKmnAKqnAKunAKynAK2nAK6nAK+mALCmALGmALKmALOmALSlALWlALalALelALikALmk"
    "ALqkALujALyjAL2jAL6iAL+iAMChAMGhAMKgAMOgAMSfAMWfAMaeDsedGMedH8icJcmcKsmbL8qaM8uaN8yZO8yZP82YQ86XRs6XSs+W"
    "TdCWUNCVU9GUVtKUWdKTXNOTX9SSYtSRZdWRZ9aQataQbdePcNeOctiOddmNeNmNetqMfdqMf9uLgtyKhNyKh92Jid2JjN6Ijt6Ikd+H"
    "k9+HluCGmOCGmuGFneGFn+KEouOEpOODpuSDqeSCq+SCreWBsOWBsuaBtOaAt+eAueeAu+h/veh/wOl/wul+xOp+xup+yep9y+t9zet9"
    "z+x90ux91O191u182O182u583e583+984e984+985fB85/B86vF87PF87vF88PJ98vJ99PJ99vN9+PN9+vN+/PR+"
)
"""256 times red, green and blue, from far to near."""


@check_arguments
def colorize(disparity: np.ndarray, low: float, high: float, *, grey: bool = False) -> np.ndarray:
    """Return the colours (H, W, 3), uint8, of a disparity map (H, W) in a range (px); unknown is black.

    grey: whether to use levels of grey, proportional to the disparity, from black (far) to white.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"the range {low:g}:{high:g} is empty", "put the smaller number first")
    check_map(disparity)
    known = np.isfinite(disparity)
    # No NaN may reach the conversion to integers.
    values = np.where(known, disparity, np.float32(low))
    steps = (np.clip(values, low, high) - low) * (255 / max(high - low, 1e-9))
    levels = np.rint(steps).astype(np.uint8)
    pixels = np.repeat(levels[..., None], 3, axis=2) if grey else get_color_table()[levels]
    pixels[~known] = 0
    return pixels


@cache
def get_color_table() -> np.ndarray:
    """Return the colours from far to near, (256, 3) uint8 RGB, in perceptually equal steps."""
    return np.frombuffer(base64.b64decode(_TABLE), np.uint8).reshape(256, 3)
