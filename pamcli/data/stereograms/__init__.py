"""Stereograms: pictures that hold the two views of a scene side by side, for crossed or parallel eyes.

`views` finds the views, `matching` and `alignment` how they lie against each other, `geometry` undoes it,
`order` tells the left one, `shift` where zero disparity belongs; `rectify` does it all.
"""

from pamcli.data.stereograms.rectify import rectify_stereogram
from pamcli.data.stereograms.result import RectifiedPair, SetAside

__all__ = ["RectifiedPair", "SetAside", "rectify_stereogram"]
