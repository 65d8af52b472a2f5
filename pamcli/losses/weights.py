"""Define the weights of the loss terms, without torch, so that options are checked before it is loaded."""

from dataclasses import dataclass

from pamcli.validation import NonNegative, Positive, Share, validate_fields


@validate_fields
@dataclass(frozen=True)
class LossWeights:
    """The weights of all loss terms, as plain JSON values; terms of weight 0 are not computed."""

    photometric: NonNegative = 0.0
    smoothness: NonNegative = 0.0  # lambda_s (Equation 16)
    pam: NonNegative = 1.0  # lambda_PAM (Equation 16), a factor of the next three weights
    pam_photometric: NonNegative = 0.0
    pam_smoothness: NonNegative = 0.0  # lambda_PAM-s (Equation 12)
    pam_cycle: NonNegative = 0.0  # lambda_PAM-c (Equation 12)
    refined: NonNegative = 0.0  # smooth L1 of the final disparity, supervised
    updates: NonNegative = 0.0  # PASMnet 2: smooth L1 of the updates' disparities, supervised
    estimate: NonNegative = 0.0
    """Smooth L1 of the estimate of PASMnet's refinement before blending, supervised. Without it a new
    refinement may close its blend permanently, because an unused estimate gets no gradient and one below 0
    never recovers. For a refinement that has closed, its gradient drowns all others."""
    initial: NonNegative = 0.0  # smooth L1 of the disparity from the attention of stage 3, supervised
    likelihood: NonNegative = 0.0  # negative log-likelihood of the true position, supervised
    likelihood_shares: tuple[NonNegative, NonNegative, NonNegative] = (0.2, 0.3, 0.5)  # of stages 1, 2, 3
    likelihood_right: Share = 1.0  # weight of the right image in `likelihood`, relative to the left one
    confidence: NonNegative = 0.0  # PASMnet 2: negative log-likelihood of the disparity error
    super_resolution: NonNegative = 0.0  # mean squared error of PASSRnet's result (L_SR, Equation 17)
    charbonnier: NonNegative = 0.0  # nearly the mean absolute error of PASSRnet's result; not in the paper
    psnr: NonNegative = 0.0  # logarithm of the mean squared error of each PASSRnet result; not in the paper
    pam_over_columns: bool = False  # divide PAM-s and PAM-c also by the number of columns of their scale
    occluded: Share = 0.0  # weight in `refined` and `updates` of a known pixel that is occluded
    logarithmic_beyond: Positive | None = None  # errors above this, px, grow logarithmically
    clamp_pseudo_labels: Positive | None = None
    """Limit of the errors of `refined` and `updates`, px, on pairs with left ground truth only, as
    pseudo-labels are. Larger errors have no gradient, so wrong labels do no harm; None = no limit."""
    mask_by_truth_below: Positive | None = None
    """Masking as in the authors' code: L_p and L_PAM-p count only pixels with 0 < ground truth < this, px,
    and supervised terms ignore larger ground truth. None = unsupervised terms use no ground truth."""

    @property
    def is_supervised(self) -> bool:
        """True if any term learns from ground truth."""
        terms = self.refined, self.updates, self.estimate, self.initial, self.likelihood, self.confidence
        return any(terms)

    @property
    def is_unsupervised(self) -> bool:
        """True if any term needs no ground truth."""
        terms = self.photometric, self.super_resolution, self.charbonnier, self.psnr
        return self.uses_attention or any(terms)

    @property
    def uses_attention(self) -> bool:
        """True if any term of L_PAM is active."""
        return bool(self.pam and (self.pam_photometric or self.pam_smoothness or self.pam_cycle))

    @property
    def needs_truth(self) -> bool:
        return self.is_supervised or self.mask_by_truth_below is not None

    def weight_of(self, term: str) -> float:
        """Return the weight of a term in the sum, with all its factors."""
        weight: float = getattr(self, term)
        return weight * self.pam if term.startswith("pam_") else weight
