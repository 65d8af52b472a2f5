"""Stereograms: pictures that hold the two views of a scene side by side, for crossed or parallel eyes.

`views` finds the views, `order` the left one; `rectify` aligns their rows, and does it all.
"""

from pamcli.data.stereograms.rectify import RectifiedPair, rectify_stereogram
from pamcli.data.stereograms.views import SetAside

__all__ = ["RectifiedPair", "SetAside", "rectify_stereogram"]
