"""Choose the crop size of each step: mostly small crops at first, wide ones at the end."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.random import default_rng

from pamcli.training.recipe import Recipe, Size

_SIZES = 4  # random stream of a seed, among those in `examples`


@dataclass(frozen=True)
class Crops:
    """The crop sizes (height, width) of a run, a function of seed and step."""

    usual: tuple[int, int]
    sizes: Sequence[Size] = ()
    """Further crop sizes, with their shares of the steps."""
    phases: Sequence[float] = ()
    """Fractions of the run at which the shares change."""
    steps: int = 1
    seed: int = 0

    @classmethod
    def of(cls, recipe: Recipe, steps: int) -> "Crops":
        """Return the crops of a recipe for a run of `steps` steps."""
        return cls(recipe.crop, recipe.sizes, recipe.phases, steps, recipe.seed)

    def at(self, step: int) -> tuple[int, int]:
        """Return height and width of a step's crops."""
        phase = bisect_right(self.phases, step / self.steps)
        place = float(default_rng((self.seed, step, _SIZES)).random()) if self.sizes else 0.0
        for size in self.sizes:
            if place < size.shares[phase]:
                return size.crop
            place -= size.shares[phase]
        return self.usual

    def pairs(self, batch: int, crop: tuple[int, int]) -> int:
        """Return how many pairs of this crop have about as many pixels as `batch` pairs of the usual crop."""
        return max(1, round(batch * self.usual[0] * self.usual[1] / (crop[0] * crop[1])))

    def most(self, batch: int) -> int:
        """Return the largest number of pairs in any step."""
        return max(self.pairs(batch, crop) for crop in (self.usual, *(size.crop for size in self.sizes)))
