"""Each protocol's figures on planted errors, beside a scorer of plain loops that has the rules in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from test_pixels import fill_slowly

from pamcli.calibration.geometry import Calibration
from pamcli.data.source import Sample
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.protocols import POOLED, PROTOCOLS

HEIGHT, WIDTH, TIMES = 12, 20, 2
NAMES = ("a/Adirondack", "a/Playtable", "a/Vintage")


def planted(name: str, seed: int) -> tuple[Sample, np.ndarray]:
    """A sample with every kind of truth and mask, and an estimate with small and large errors and holes."""
    random = np.random.default_rng(seed)
    size = (HEIGHT, WIDTH)
    # On thirds of a pixel, so that nothing lies exactly on a threshold.
    coarse = np.exp(random.uniform(-1, 5.5, size)).round() - 1
    fine = np.repeat(np.repeat(coarse, TIMES, 0), TIMES, 1)
    fine = (fine + random.integers(-4, 5, fine.shape) / 3 + 0.01).astype(np.float32)
    fine[random.random(fine.shape) < 0.1] = np.nan
    truth = fine[::TIMES, ::TIMES].copy()
    error = random.choice([0.1, 0.55, 0.9, 1.3, 2.2, 3.3, 4.4, 5.7, 7, 9, 40], size) * random.choice(
        [-1, 1], size
    )
    estimate = (np.nan_to_num(truth, nan=20) + error).astype(np.float32)
    estimate[random.random(size) < 0.15] = np.nan
    kinds = random.integers(0, 4, size)
    view = np.zeros((*size, 3), np.uint8)
    sample = Sample(
        name,
        view,
        view,
        disparity=truth,
        visible=random.random(size) < 0.7,
        foreground=random.random(size) < 0.3,
        calibration=Calibration(500, 0.1, ndisp=180),
        masks={
            "low-detail": kinds < 3,
            "high-detail": kinds == 3,
            "sky": kinds == 0,
            "not-sky": kinds > 0,
            **{f"class-{number}": kinds == number for number in range(4)},
        },
        fine=fine,
        fine_visible=random.random(fine.shape) < 0.7,
    )
    return sample, estimate


SET = [planted(name, seed) for seed, name in enumerate(NAMES)]


def scored_pixels(name: str, data: str, sample: Sample, estimate: np.ndarray) -> Iterator[dict[str, object]]:
    """What each counted pixel gives under the rules of a name: its regions, error, and the truth for 5 %."""
    limited = name in ("sceneflow", "pasmnet", "igev") or (name == "raft-stereo" and data == "sceneflow")
    limited |= name == "lite-any-stereo" and data != "eth3d"
    positive = name in ("kitti", "kitti2012", "sceneflow", "pasmnet", "booster", "booster-own-size")
    fine = {"middlebury-v3": TIMES, "booster": TIMES}.get(name, 1)
    done = fill_slowly(estimate) if name.startswith("kitti") else estimate
    for y in range(fine * HEIGHT):
        for x in range(fine * WIDTH):
            at = y // fine, x // fine
            guess = float(done[at]) * fine
            if fine > 1:
                truths = [float(sample.fine[y, x]) * fine]
            elif name == "spring":
                truths = [float(v) for v in sample.fine[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].ravel()]
            else:
                truths = [float(sample.disparity[y, x])]
            if any(math.isnan(truth) for truth in truths):
                continue
            truth = sum(truths) / len(truths)
            if (positive and truth <= 0) or (limited and truth >= 192):
                continue
            if name == "pasmnet" and (y < HEIGHT - 512 or x < WIDTH - 960):
                continue
            if name == "middlebury-v3" and not math.isnan(guess):
                guess = min(max(guess, 0), 180 * fine)
            if name == "eth3d" and abs(guess) > WIDTH:
                guess = math.nan
            visible = sample.fine_visible[y, x] if fine > 1 else sample.visible[at]
            regions = {"all", "noc" if visible else "occluded"}
            front = "fg" if sample.foreground[at] else "bg"
            regions |= {front, f"noc-{front}"} if visible else {front}
            regions |= {each for each, mask in sample.masks.items() if mask[at]}
            if truth >= 0:
                regions.add("0 to 10" if truth < 10 else "10 to 40" if truth < 40 else "40 and more")
            error = min(abs(guess - each) for each in truths)
            share = error / max(abs(each) for each in truths)
            hole = math.isnan(float(estimate[at])) or (name == "eth3d" and math.isnan(guess))
            yield {"regions": regions, "error": error, "share": share, "hole": hole}


def figure(name: str, metric: str, pixels: list[dict[str, object]]) -> float:
    """One figure of some pixels, by the rules of a name."""
    errors = [each["error"] for each in pixels if not math.isnan(each["error"])]
    if metric == "epe":
        return sum(errors) / len(errors)
    if metric == "rms":
        return math.sqrt(sum(error**2 for error in errors) / len(errors))
    if metric in ("density", "invalid"):
        holes = 100 * sum(each["hole"] for each in pixels) / len(pixels)
        return holes if metric == "invalid" else 100 - holes
    if metric.startswith("a"):
        share, errors = int(metric[1:]) / 100, sorted(errors)
        if name == "eth3d":
            return errors[math.floor(share * len(errors) + 1e-9)]
        return next(e for n, e in enumerate(errors, 1) if n >= share * len(errors) - 1e-9)
    least, five = {"d1": (3, True), "d1-1": (1, True)}.get(metric, (None, False))
    least = float(metric.removeprefix("bad-")) if least is None else least
    wrong = total = 0
    for each in pixels:
        if math.isnan(each["error"]):
            if name != "eth3d":
                wrong, total = wrong + 1, total + 1
            continue
        total += 1
        wrong += each["error"] > least and (not five or each["share"] > 0.05)
    return 100 * wrong / total


CASES = [(name, data) for name, row in PROTOCOLS.items() for data in ("", *row.by_data)]


@pytest.mark.parametrize(("name", "data"), CASES, ids=str)
def test_stated_figures_are_those_of_plain_loops(name: str, data: str) -> None:
    meter = DisparityMeter(PROTOCOLS[name].get_rules(data))
    for sample, estimate in SET:
        meter.add(sample, Estimate(estimate))
    pictures = [[*scored_pixels(name, data, *each)] for each in SET]
    by_scene = PROTOCOLS["middlebury-v3"].rules.weights
    weights = [by_scene.get(each.rpartition("/")[2], 1) for each in NAMES]
    if name != "middlebury-v3" and data != "middlebury":
        weights = [1, 1, 1]
    if name in ("raft-stereo", "igev", "lite-any-stereo"):
        weights = [1, 1, 1]
    assert meter.protocol.stated
    for each in meter.protocol.stated:
        of = [[pixel for pixel in pixels if each.region in pixel["regions"]] for pixels in pictures]
        if each.average == POOLED:
            expected = figure(name, each.metric, [pixel for pixels in of for pixel in pixels])
            found = meter.pooled_metrics[each.region][each.metric]
        else:
            values = [figure(name, each.metric, pixels) for pixels in of]
            expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
            found = meter.image_means[each.region][each.metric]
        assert found == pytest.approx(expected, abs=1e-6, rel=1e-6), each


def test_the_corner_of_a_large_image_alone_counts_for_the_paper() -> None:
    truth = np.full((540, 970), 50, np.float32)
    estimate = truth.copy()
    estimate[:28] += 10  # above the corner
    estimate[:, :10] += 10
    estimate[28, 10:20] += 1.5  # more than 1 px, less than 5 %
    estimate[29, 10:20] += 2.6
    view = np.zeros((*truth.shape, 3), np.uint8)
    meter = DisparityMeter(PROTOCOLS["pasmnet"].get_rules("sceneflow"))
    meter.add(Sample("a", view, view, disparity=truth), Estimate(estimate))
    figures = meter.image_means["all"]
    assert figures["pixels"] == 960 * 512
    assert figures["d1-1"] == pytest.approx(100 * 10 / (960 * 512), abs=1e-9)
    assert figures["bad-1"] == pytest.approx(100 * 20 / (960 * 512), abs=1e-9)


def test_coarse_ground_truth_is_measured_with_a_note() -> None:
    sample, estimate = SET[0]
    bare = replace(sample, fine=None, fine_visible=None)
    meter = DisparityMeter(PROTOCOLS["middlebury-v3"].get_rules("middlebury"))
    meter.add(bare, Estimate(estimate))
    meter.add(sample, Estimate(estimate))
    assert any(note.startswith("1 pair without full-size ground truth") for note in meter.notes)
    whole = DisparityMeter(PROTOCOLS["middlebury-v3"].get_rules("middlebury"), full_size=True)
    whole.add(bare, Estimate(estimate))
    assert not any("full-size" in note for note in whole.notes)
