"""Which of two views is the left one, told from half-occlusions.

Take disparity as first x - second x. Were the first view the left one, larger would be nearer; were it the
right one, smaller would be. The sign of the disparities does not tell, nor do their steps: both readings
leave the same strips that one view alone sees. What differs is on which side of the strip the nearer surface
begins. The contour between two surfaces is the rim of the nearer one: it moves from view to view as that one
does, and not as the surface behind it. So wherever disparity steps from one value to another, the edges
between them are compared with the other view at both disparities, and vote for the better one as the nearer:
if that is the larger one, the first view is the left one.

A second, weak hint: what is lower in a picture is usually nearer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.data.stereograms.matching import DenseMatch

_Colours = NDArray[np.float32]
_Ints = NDArray[np.intp]
_Floats = NDArray[np.float32]

_STEP = 2.0
"""Pixels by which disparity must change: an edge is found to about one."""
_HIDDEN = 6
"""Pixels by which a strip without match may be wider than the step that explains it."""
_MARGIN = 3
"""Columns at the sides of a view without a vote."""
_ROWS = 1
"""Rows above and below that are compared, too."""
_SLACK = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Pixels by which an edge may be off its disparity."""
_SIDE = 5
"""Pixels on either side of a step that must belong to the disparity found there."""
_SIDE_SLACK = (-0.5, 0.0, 0.5)
_DISTINCT = 0.12
"""By how much, of their sum, the other disparity must fit those pixels worse."""
_NOISE = 5.0
"""Difference of two gradients that says nothing, grey levels of three channels a pixel."""
_EXPLAINED = 0.35
"""Share of an edge that may differ from its match, beyond the noise."""
_MOST = 40.0
"""No edge counts for more than this difference."""
_TILES = 8
"""The picture is cut into 8 x 8 tiles, whose agreement tells how sure the vote is."""
_WEIGHTS = (5.0, 1.0, 2.0)
"""Of vote, agreement and rows in the log-odds of the order; see scripts/check_stereograms.py."""


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
        """That the first view is the left one."""
        return float(np.dot(_WEIGHTS, (self.vote, self.agreement, self.rows)))

    @property
    def first_is_left(self) -> bool:
        return self.log_odds > 0

    @property
    def certainty(self) -> float:
        """0.5 .. 1: probability of the likelier order, as calibrated on stereograms of known order."""
        return float(1 / (1 + np.exp(-min(abs(self.log_odds), 50.0))))


def weigh_order(first: NDArray[np.uint8], second: NDArray[np.uint8], match: DenseMatch) -> OrderEvidence:
    """Evidence from two views (H, W, 3), aligned row by row, and their disparities (of the same size)."""
    one, two = _gradients(first), _gradients(second)
    votes, total = np.zeros((_TILES, _TILES)), 0.0
    for here, there, disparity, seen, sign in (
        (one, two, match.first, match.first_seen, 1),
        (two, one, match.second, match.second_seen, -1),
    ):
        y, x, vote = _votes(here, there, disparity, seen, sign)
        height, width = disparity.shape
        np.add.at(votes, (y * _TILES // height, x * _TILES // width), vote)
        total += float(np.abs(vote).sum())
    spread = float(np.sqrt((votes**2).sum()))
    rows = np.broadcast_to(np.arange(len(match.first))[:, None], match.first.shape)[match.first_seen]
    disparities = match.first[match.first_seen]
    flat = len(disparities) < 2 or float(disparities.std()) < 1e-3
    return OrderEvidence(
        vote=float(votes.sum()) / total if total else 0.0,
        agreement=float(votes.sum()) / spread if spread else 0.0,
        rows=0.0 if flat else float(np.corrcoef(rows, disparities)[0, 1]),
    )


def _gradients(view: NDArray[np.uint8]) -> _Colours:
    """(H, W, 3): half the difference of the neighbours on the right and on the left."""
    values = view.astype(np.float32)
    gradients = np.zeros_like(values)
    gradients[:, 1:-1] = (values[:, 2:] - values[:, :-2]) / 2
    return gradients


def _votes(
    here: _Colours, there: _Colours, disparity: _Floats, seen: NDArray[np.bool_], sign: int
) -> tuple[_Ints, _Ints, _Floats]:
    """Rows and columns of the edges at disparity steps, and their votes for the larger disparity.

    A place x of `here` is x - sign * disparity of `there`.
    """
    y, x, left_end, right_end = _steps(disparity, seen)
    left, right = disparity[y, left_end], disparity[y, right_end]
    width = disparity.shape[1]
    places = x[:, None] - sign * np.stack([left, right], axis=1)
    keep = (places > _MARGIN).all(axis=1) & (places < width - _MARGIN - 2).all(axis=1)
    y, x, left_end, right_end, left, right = (v[keep] for v in (y, x, left_end, right_end, left, right))

    def cost(column: _Ints, value: _Floats, slack: tuple[float, ...], rows: int) -> _Floats:
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
    edge = np.abs(here[y, x]).sum(axis=1)
    trusted &= np.minimum(as_left, as_right) < _EXPLAINED * edge + _NOISE
    vote = np.clip(as_left - as_right, -_MOST, _MOST) * np.sign(right - left)
    return y[trusted], x[trusted], vote[trusted].astype(np.float32)


def _steps(disparity: _Floats, seen: NDArray[np.bool_]) -> tuple[_Ints, _Ints, _Ints, _Ints]:
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
