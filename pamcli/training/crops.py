"""What size the crops of a step have: small ones first, of which a step sees many, wide ones last."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.random import default_rng

from pamcli.training.recipe import Recipe, Size

_SIZES = 4  # the random stream of a seed, of those in `examples`


@dataclass(frozen=True)
class Crops:
    """The crops of a run's steps, heights and widths. A step's is a function of the seed and its number."""

    usual: tuple[int, int]
    sizes: Sequence[Size] = ()
    """Others, by their shares of the steps."""
    phases: Sequence[float] = ()
    """Parts of the run at which the shares change."""
    steps: int = 1
    seed: int = 0

    @classmethod
    def of(cls, recipe: Recipe, steps: int) -> "Crops":
        """Make the crops of a recipe in a run of so many steps."""
        return cls(recipe.crop, recipe.sizes, recipe.phases, steps, recipe.seed)

    def at(self, step: int) -> tuple[int, int]:
        """Height and width."""
        phase = bisect_right(self.phases, step / self.steps)
        place = float(default_rng((self.seed, step, _SIZES)).random()) if self.sizes else 0.0
        for size in self.sizes:
            if place < size.shares[phase]:
                return size.crop
            place -= size.shares[phase]
        return self.usual

    def pairs(self, batch: int, crop: tuple[int, int]) -> int:
        """Pairs that have about as many pixels as `batch` pairs of the usual crop."""
        return max(1, round(batch * self.usual[0] * self.usual[1] / (crop[0] * crop[1])))

    def most(self, batch: int) -> int:
        """Pairs of the step that has most."""
        return max(self.pairs(batch, crop) for crop in (self.usual, *(size.crop for size in self.sizes)))
