"""Which of two views is the left one, found from half-occlusions.

Take disparity as first x - second x. Were the first view the left one, larger would be nearer; were it the
right one, smaller would be. Neither the sign of the disparities decides, nor do their steps: both readings
leave the same strips that one view alone sees. What differs is on which side of the strip the nearer surface
begins. The contour between two surfaces is the rim of the nearer one: it moves from view to view as that one
does, and not as the surface behind it. So wherever disparity steps from one value to another, the edges
between them are compared with the other view at both disparities, and vote for the better one as the nearer:
if that is the larger one, the first view is the left one.

A second, weak hint: what is lower in a picture is usually nearer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.matching import Colours, DenseMatch, Values

_Ints = NDArray[np.intp]

_STEP = 2.0  # pixels by which disparity must change: an edge is found to about one
_HIDDEN = 6  # pixels by which a strip without match may be wider than the step that explains it
_MARGIN = 3  # columns at the sides of a view without a vote
_ROWS = 1  # rows above and below that are compared, too
_SLACK = (-1.0, -0.5, 0.0, 0.5, 1.0)  # pixels by which an edge may be off its disparity
_RIM = 3  # pixels by which disparities step beside the rim, which is where the picture itself changes most
_SIDE, _SIDE_SLACK = 5, (-0.5, 0.0, 0.5)
"""Pixels on either side of a step that must belong to the disparity found there."""
_DISTINCT = 0.12  # by how much, of their sum, the other disparity must fit those pixels worse
_NOISE = 5.0  # difference of two gradients that says nothing, grey levels of three channels a pixel
_EXPLAINED = 0.35  # share of an edge that may differ from its match, beyond the noise
_MOST = 40.0  # no edge counts for more than this difference
_TILES = 8  # the picture is cut into 8 x 8 tiles, whose agreement says how sure the vote is
_WEIGHTS = (5.0, 1.0, 2.0)
"""Weights of vote, agreement and rows in the log-odds of the order; see scripts/check_stereograms.py."""


@dataclass(frozen=True)
class OrderEvidence:
    """Above 0 where the first view looks like the left one, below where it looks like the right one."""

    vote: float
    """-1 .. 1: balance of all edges between two disparities."""
    agreement: float
    """-8 .. 8: the same, tile by tile, in standard errors."""
    rows: float
    """-1 .. 1: correlation of disparity and row."""

    @property
    def log_odds(self) -> float:
        """Log-odds that the first view is the left one."""
        return float(np.dot(_WEIGHTS, (self.vote, self.agreement, self.rows)))

    @property
    def first_is_left(self) -> bool:
        return self.log_odds > 0

    @property
    def certainty(self) -> float:
        """0.5 .. 1: probability of the likelier order, as calibrated on stereograms of known order."""
        return float(1 / (1 + np.exp(-min(abs(self.log_odds), 50.0))))


def weigh_order(first: Colours, second: Colours, match: DenseMatch) -> OrderEvidence:
    """Evidence from two views (H, W, 3), aligned row by row, and their disparities (of the same size)."""
    one, two = (np.gradient(view.astype(np.float32), axis=1) for view in (first, second))
    height, width = match.first.shape
    votes, total = np.zeros((_TILES, _TILES)), 0.0
    for here, there, disparity, seen, sign in (
        (one, two, match.first, match.first_seen, 1),
        (two, one, match.second, match.second_seen, -1),
    ):
        y, x, vote = _votes(here, there, disparity, seen, sign)
        np.add.at(votes, (y * _TILES // height, x * _TILES // width), vote)
        total += float(np.abs(vote).sum())
    rows, disparities = np.nonzero(match.first_seen)[0], match.first[match.first_seen]
    flat = len(disparities) < 2 or float(disparities.std()) < 1e-3
    return OrderEvidence(
        vote=float(votes.sum()) / (total or 1.0),
        agreement=float(votes.sum()) / (float(np.sqrt((votes**2).sum())) or 1.0),
        rows=0.0 if flat else float(np.corrcoef(rows, disparities)[0, 1]),
    )


def _votes(
    here: Values, there: Values, disparity: Values, seen: NDArray[np.bool_], sign: int
) -> tuple[_Ints, _Ints, Values]:
    """Rows and columns of the edges at disparity steps, and their votes for the larger disparity.

    A place x of `here` is x - sign * disparity of `there`.
    """
    width = disparity.shape[1]
    y, x, left_end, right_end = _steps(disparity, seen)
    around = np.clip(x[:, None] + np.arange(-_RIM, _RIM + 1), 0, width - 1)
    x = around[np.arange(len(x)), np.abs(here[y[:, None], around]).sum(axis=2).argmax(axis=1)]
    places = x[:, None] - sign * np.stack([disparity[y, left_end], disparity[y, right_end]], axis=1)
    keep = (places > _MARGIN).all(axis=1) & (places < width - _MARGIN - 2).all(axis=1)
    y, x, left_end, right_end = (values[keep] for values in (y, x, left_end, right_end))
    left, right = disparity[y, left_end], disparity[y, right_end]

    def cost(column: _Ints, value: Values, slack: tuple[float, ...], rows: int) -> Values:
        """Difference of the gradients here and at the match there, the least within the slack."""
        column = np.clip(column, 0, width - 1)
        best = np.full(len(y), np.inf, np.float32)
        for move in slack:
            place = np.clip(column - sign * value + move, 0, width - 1.01)
            whole = np.floor(place).astype(np.intp)
            part = (place - whole).astype(np.float32)[:, None]
            difference = np.zeros(len(y), np.float32)
            for row in range(-rows, rows + 1):
                found = there[y + row, whole] * (1 - part) + there[y + row, whole + 1] * part
                difference += np.abs(here[y + row, column] - found).sum(axis=1)
            np.minimum(best, difference / (2 * rows + 1), out=best)
        return best

    trusted = np.ones(len(y), np.bool_)
    for end, step, own, other in ((left_end, -1, left, right), (right_end, 1, right, left)):
        side = [end + step * away for away in range(_SIDE)]
        fits, misfits = (
            sum(cost(column, value, _SIDE_SLACK, 0) for column in side) for value in (own, other)
        )
        trusted &= (misfits - fits) > _DISTINCT * (misfits + fits + _SIDE * _NOISE)
    as_left, as_right = cost(x, left, _SLACK, _ROWS), cost(x, right, _SLACK, _ROWS)
    trusted &= np.minimum(as_left, as_right) < _EXPLAINED * np.abs(here[y, x]).sum(axis=1) + _NOISE
    vote = np.clip(as_left - as_right, -_MOST, _MOST) * np.sign(right - left)
    return y[trusted], x[trusted], vote[trusted].astype(np.float32)


def _steps(disparity: Values, seen: NDArray[np.bool_]) -> tuple[_Ints, _Ints, _Ints, _Ints]:
    """Rows and columns near steps, and the nearest columns to the left and right that both views see."""
    height, width = disparity.shape
    columns = np.broadcast_to(np.arange(width), disparity.shape)
    before = np.maximum.accumulate(np.where(seen, columns, -1), axis=1)[:, :-2]
    after = np.minimum.accumulate(np.where(seen, columns, width)[:, ::-1], axis=1)[:, ::-1][:, 2:]
    rows = np.arange(height)[:, None]
    step = np.abs(disparity[rows, np.maximum(before, 0)] - disparity[rows, np.minimum(after, width - 1)])
    found = (before >= 0) & (after < width) & (step >= _STEP) & (after - before - 2 < step + _HIDDEN)
    found[:_ROWS] = found[height - _ROWS :] = False
    found[:, :_MARGIN] = found[:, -_MARGIN:] = False
    y, x = np.nonzero(found)
    return y, x + 1, before[y, x], after[y, x]
