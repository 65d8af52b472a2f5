"""What each term of the losses counts. No torch here: options are checked before it is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pamcli.errors import UsageError


@dataclass(frozen=True)
class LossWeights:
    """What every term counts; one of weight 0 is not computed. Plain numbers, to be stored as JSON.

    Raises UsageError: a weight below 0 or not finite, a limit that is not above 0.
    """

    photometric: float = 0.0
    smoothness: float = 0.0
    """lambda_s (Equation 16)."""
    pam: float = 1.0
    """lambda_PAM (Equation 16; lambda in Equation 18), a factor of the three that follow."""
    pam_photometric: float = 0.0
    pam_smoothness: float = 0.0
    """lambda_PAM-s (Equation 12)."""
    pam_cycle: float = 0.0
    """lambda_PAM-c (Equation 12)."""
    refined: float = 0.0
    """Smooth L1 of PASMnet's refined disparity, supervised."""
    estimate: float = 0.0
    """Smooth L1 of what the refinement estimates by itself, before it is blended, supervised. Without it the
    blend may close for good: an estimate that is not taken learns nothing, and one below 0 never will."""
    initial: float = 0.0
    """Smooth L1 of the disparity that the attention of stage 3 gives, supervised."""
    likelihood: float = 0.0
    """Negative log-likelihood of the true position under the attention, supervised; stages as for PAM."""
    super_resolution: float = 0.0
    """Mean square error of PASSRnet's picture (L_SR)."""
    charbonnier: float = 0.0
    """Nearly the mean absolute error of PASSRnet's picture: not the paper's."""
    pam_over_columns: bool = False
    """Divide PAM-s and PAM-c by the number of columns of their scale, too, as the authors' code does."""
    refine_occluded: bool = False
    """`refined` counts known pixels that the other view does not see, too."""
    mask_by_truth_below: float | None = None
    """The authors' masking: L_p and L_PAM-p count pixels with 0 < truth < this alone, and so need a truth;
    supervised terms take a truth from here on as unknown. None: no unsupervised term looks at a truth."""

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            if name == "mask_by_truth_below":
                if weight is not None and not (math.isfinite(weight) and weight > 0):
                    raise UsageError(f"{name} must be above 0, not {weight}")
            elif not (math.isfinite(weight) and weight >= 0):
                raise UsageError(f"{name} must be a number from 0 up, not {weight}", "0 switches a term off")

    @property
    def need_truth(self) -> bool:
        supervised = self.refined or self.estimate or self.initial or self.likelihood
        return bool(supervised) or self.mask_by_truth_below is not None


SCENEFLOW = LossWeights(
    photometric=1, smoothness=0.1, pam=1, pam_photometric=1, pam_smoothness=1, pam_cycle=1
)
KITTI = replace(SCENEFLOW, smoothness=0.5, pam_smoothness=5, pam_cycle=5)
"""Section 4.3.2."""
SUPER_RESOLUTION = LossWeights(
    super_resolution=1, pam=0.005, pam_photometric=1, pam_smoothness=1, pam_cycle=1
)
"""Section 5.2."""
SUPERVISED = LossWeights(refined=1, estimate=0.5, initial=0.5, likelihood=1)
"""PASMnet with known disparities: not the paper's."""
