"""What each term of the losses counts. No torch here: options are checked before it is loaded."""

from dataclasses import dataclass

from pamcli.checked import FromZero, Positive, Share, checked


@checked
@dataclass(frozen=True)
class LossWeights:
    """What every term counts; one of weight 0 is not computed. Plain numbers, to be stored as JSON.

    Raises UsageError: a weight below 0 or not finite, a limit that is not above 0.
    """

    photometric: FromZero = 0.0
    smoothness: FromZero = 0.0
    """lambda_s (Equation 16)."""
    pam: FromZero = 1.0
    """lambda_PAM (Equation 16; lambda in Equation 18), a factor of the three that follow."""
    pam_photometric: FromZero = 0.0
    pam_smoothness: FromZero = 0.0
    """lambda_PAM-s (Equation 12)."""
    pam_cycle: FromZero = 0.0
    """lambda_PAM-c (Equation 12)."""
    refined: FromZero = 0.0
    """Smooth L1 of the disparity that the network gives, supervised."""
    updates: FromZero = 0.0
    """PASMnet 2: smooth L1 of the disparities of its updates, the last of which counts most, supervised."""
    estimate: FromZero = 0.0
    """Smooth L1 of what PASMnet's refinement estimates by itself, before it is blended, supervised. Without
    it a refinement that begins anew may close its blend for good: an estimate that is not taken learns
    nothing, and one below 0 never will. Of one that has closed, its gradient drowns all others."""
    initial: FromZero = 0.0
    """Smooth L1 of the disparity that the attention of stage 3 gives, supervised."""
    likelihood: FromZero = 0.0
    """Negative log-likelihood of the true position under the attention, supervised."""
    likelihood_shares: tuple[FromZero, FromZero, FromZero] = (0.2, 0.3, 0.5)
    """Shares of the stages 1, 2, 3 in `likelihood`."""
    likelihood_right: Share = 1.0
    """What the right view counts in it, beside the left one."""
    confidence: FromZero = 0.0
    """PASMnet 2: negative log-likelihood of its disparity's error under the distribution that it expects,
    supervised. Nothing but that expectation learns of it."""
    super_resolution: FromZero = 0.0
    """Mean square error of PASSRnet's picture (L_SR, Equation 17)."""
    charbonnier: FromZero = 0.0
    """Nearly the mean absolute error of PASSRnet's picture: not the paper's."""
    psnr: FromZero = 0.0
    """Logarithm of the mean square error of each of PASSRnet's pictures: not the paper's."""
    pam_over_columns: bool = False
    """Divide PAM-s and PAM-c by the number of columns of their scale, too, as the authors' code does."""
    occluded: Share = 0.0
    """What a known pixel that the other view does not see counts in `refined` and `updates`."""
    logarithmic_beyond: Positive | None = None
    """Errors of `refined` and `updates` that exceed so many pixels grow as the logarithm does. None: none."""
    mask_by_truth_below: Positive | None = None
    """The authors' masking: L_p and L_PAM-p count pixels with 0 < truth < this alone, and so need a truth;
    supervised terms take a truth from here on as unknown. None: no unsupervised term looks at a truth."""

    @property
    def supervised(self) -> bool:
        """Some term learns from known disparities."""
        terms = self.refined, self.updates, self.estimate, self.initial, self.likelihood, self.confidence
        return any(terms)

    @property
    def of_attention(self) -> bool:
        """Some term of L_PAM counts."""
        return bool(self.pam and (self.pam_photometric or self.pam_smoothness or self.pam_cycle))

    @property
    def need_truth(self) -> bool:
        return self.supervised or self.mask_by_truth_below is not None

    def of(self, term: str) -> float:
        """What a term counts in the sum, with all its factors."""
        weight: float = getattr(self, term)
        return weight * self.pam if term.startswith("pam_") else weight
