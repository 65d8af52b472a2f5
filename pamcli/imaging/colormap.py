"""Disparity as colours: from far and dark blue over green to near and bright yellow.

The map was made in OKLCH (lightness, chroma, hue, as the eye sorts them), from (0.32, 0.15, 300 degrees) to
(0.95, 0.14, 105), no more colourful than a screen can show, in steps of equal size to the eye. Lightness
rises from each entry to the next, so that the order of disparities survives a black-and-white print and
colour blindness, while the hue turns; the far end is not black, which stands for unknown.
"""

import base64
import math
from functools import cache

import numpy as np

from pamcli.errors import UsageError

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


def colorize(disparity: np.ndarray, low: float, high: float) -> np.ndarray:
    """Colour a disparity map: `low` and what lies below is darkest, `high` and what lies above brightest.

    disparity: (H, W) float32, pixels; NaN or inf = unknown, which is black. low, high: pixels; where they are
    equal, as in a map that is the same everywhere, all of it is darkest. Returns (H, W, 3) uint8, RGB.
    Raises UsageError: low above high, or one of them not a finite number.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"the range {low:g}:{high:g} is empty", "give the smaller number first")
    known = np.isfinite(disparity)
    # An unknown pixel becomes `low` so that no NaN reaches the conversion to integers.
    values = np.where(known, disparity, np.float32(low))
    steps = (np.clip(values, low, high) - low) * (255 / max(high - low, 1e-9))
    pixels = color_table()[np.rint(steps).astype(np.uint8)]
    pixels[~known] = 0
    return pixels


@cache
def color_table() -> np.ndarray:
    """(256, 3) uint8, RGB: the colours from far to near, in steps of equal size to the eye."""
    return np.frombuffer(base64.b64decode(_TABLE), np.uint8).reshape(256, 3)
