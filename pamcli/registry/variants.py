"""Define variants of the networks, such as those of the paper's ablation tables. No torch here."""

from dataclasses import dataclass, fields
from typing import Literal

from pamcli.errors import UsageError

PAPER = "paper"  # the published or default network, from which every other variant differs


@dataclass(frozen=True)
class Variant:
    """The building blocks of a network; raises UsageError for incompatible parts."""

    @property
    def changes(self) -> list[str]:
        """Differences from the published network, as KEY=VALUE."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return [f"{field.name}={value}" for field, value in values if value != field.default]

    def __str__(self) -> str:
        return ",".join(self.changes) or PAPER

    @property
    def missing_parts(self) -> list[str]:
        """Parts of the published network that this variant lacks."""
        absent = {"refinement=none": "refine", "views=left": "pam"}
        return [absent[change] for change in self.changes if change in absent]

    @property
    def has_attention(self) -> bool:
        """True if the losses have attention maps; cost volumes are converted to maps too."""
        return not {"views=left", "matching=stacked"} & {*self.changes}


@dataclass(frozen=True)
class PASMnetVariant(Variant):
    """The variants of Tables 1, 2 and 4."""

    features: Literal["hourglass", "pyramid"] = "hourglass"
    """pyramid: use only the encoder's features of each scale, without coarser ones."""
    scales: Literal[3, 1] = 3
    """1: match at a quarter of the size only, not coarse to fine."""
    blocks: Literal[4, 3, 2, 1] = 4
    """Number of parallax-attention blocks per stage."""
    refinement: Literal["hourglass", "none"] = "hourglass"
    """none: only upsample the initial disparity."""
    volume: Literal["none", 64, 96, 128, 192, 256] = "none"
    """Disparities, px, of 4D cost volumes with four 3D convolutions each that replace the attention."""

    def __post_init__(self) -> None:
        if self.volume != "none" and (self.scales, self.blocks) != (3, 4):
            raise UsageError("`volume` cannot be combined with `scales` or `blocks`", "omit these")
        if (self.features, self.scales) == ("pyramid", 1):
            raise UsageError("`features` pyramid cannot be combined with `scales` 1", "change one of them")


@dataclass(frozen=True)
class PASSRnetVariant(Variant):
    """The variants of Tables 10 and 11."""

    views: Literal["both", "left", "twice"] = "both"
    """left: upscale each image separately. twice: also use each image as the other one."""
    pyramid: Literal["residual", "cascaded", "plain"] = "residual"
    """cascaded: groups of dilated convolutions without residual connections. plain: without dilation."""
    matching: Literal["attention", "stacked"] = "attention"
    """stacked: concatenate the features of both images unchanged."""
    transition: Literal["block", "none"] = "block"
    """none: compare features by attention without a separate residual block."""
    volume: Literal["none", 16, 32, 64] = "none"
    """Disparities, low-resolution px, of a 4D cost volume that replaces the attention."""

    def __post_init__(self) -> None:
        others = {"pyramid=cascaded", "pyramid=plain", "views=twice"}
        if len({*self.changes} - others) > 1:
            raise UsageError("views=left, matching, transition and volume cannot be combined", "use only one")


@dataclass(frozen=True)
class PASSRnet2Variant(Variant):
    """The depths of PASSRnet 2 (not in the paper); the default has 16 blocks."""

    blocks: Literal[16, 32] = 16
    """Number of gated blocks; 32 take 1.7 times as long as 16 and can start from weights of 16."""
