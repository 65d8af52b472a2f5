"""Variants of the networks, such as the paper's ablation tables have: plain values. No torch here."""

from dataclasses import dataclass, fields
from typing import Literal

from pamcli.errors import UsageError

PAPER = "paper"  # the published network, or the usual one, of which every other variant is a change


@dataclass(frozen=True)
class Variant:
    """What a network is made of. Raises UsageError for parts that exclude each other."""

    @property
    def changes(self) -> list[str]:
        """What differs from the published network, as KEY=VALUE."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return [f"{field.name}={value}" for field, value in values if value != field.default]

    def __str__(self) -> str:
        return ",".join(self.changes) or PAPER

    @property
    def without(self) -> list[str]:
        """Parts of the published network that are not there."""
        absent = {"refinement=none": "refine", "views=left": "pam"}
        return [absent[change] for change in self.changes if change in absent]

    @property
    def attends(self) -> bool:
        """There are attention maps, for losses to look at: a cost volume is made into such, too."""
        return not {"views=left", "matching=stacked"} & {*self.changes}


@dataclass(frozen=True)
class PASMnetVariant(Variant):
    """Tables 1, 2 and 4."""

    features: Literal["hourglass", "pyramid"] = "hourglass"
    """pyramid: of each scale what the encoder finds, with nothing from the coarser ones."""
    scales: Literal[3, 1] = 3
    """1: matching costs at a quarter of the size alone, not from coarse to fine."""
    blocks: Literal[4, 3, 2, 1] = 4
    """Parallax-attention blocks of a stage."""
    refinement: Literal["hourglass", "none"] = "hourglass"
    """none: the initial disparity is enlarged, and that is all."""
    volume: Literal["none", 64, 96, 128, 192, 256] = "none"
    """Disparities, pixels, of 4D cost volumes with four 3D convolutions each in place of the attention."""

    def __post_init__(self) -> None:
        if self.volume != "none" and (self.scales, self.blocks) != (3, 4):
            raise UsageError("a cost volume takes the place of all blocks of three scales", "leave these out")
        if (self.features, self.scales) == ("pyramid", 1):
            raise UsageError("of a pyramid, one scale would leave most of the encoder unused", "change one")


@dataclass(frozen=True)
class PASSRnetVariant(Variant):
    """Tables 10 and 11."""

    views: Literal["both", "left", "twice"] = "both"
    """left: each picture is enlarged by itself; twice: each stands in the place of the other view, too."""
    pyramid: Literal["residual", "cascaded", "plain"] = "residual"
    """cascaded: groups of dilated convolutions without residual connections; plain: without dilation."""
    matching: Literal["attention", "stacked"] = "attention"
    """stacked: features of both views side by side, as they are."""
    transition: Literal["block", "none"] = "block"
    """none: attention compares the features without a residual block of its own."""
    volume: Literal["none", 16, 32, 64] = "none"
    """Disparities, low-resolution pixels, of a 4D cost volume in place of the attention."""

    def __post_init__(self) -> None:
        others = {"pyramid=cascaded", "pyramid=plain", "views=twice"}
        if len({*self.changes} - others) > 1:
            raise UsageError("views=left, matching, transition and volume exclude each other")


@dataclass(frozen=True)
class PASSRnet2Variant(Variant):
    """Depths of PASSRnet 2, which is not the paper's; the usual one has 16 blocks."""

    blocks: Literal[16, 32] = 16
    """Gated blocks. 32 take 1.7 times as long as 16, and may start from weights of 16."""
