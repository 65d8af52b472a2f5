"""pam eval superres: what enlarged pictures are worth beside bicubic, of clean pictures or a camera's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pamcli.cli import options, parsing
from pamcli.cli.evaluate import DataSets, Exact, Shown, measured, one_set
from pamcli.cli.groups import flag, option
from pamcli.cli.network import Upscaling
from pamcli.cli.options import at_most_one
from pamcli.errors import UsageError
from pamcli.registry.catalog import DEFAULT_SCALE

if TYPE_CHECKING:
    from pamcli.evaluation.methods import Method


class SuperresInput(DataSets):
    """Pictures to measure."""

    allow_missing: bool = flag("Leave out samples that have no prediction.")
    baseline_only: bool = flag("Measure bicubic enlargement alone, without a network.")
    right_view: Literal["both", "right", "left"] = option(
        "left: give the network the left view twice. right: give it the right one. both: tell besides what "
        "the second view is worth, for up to twice the time.",
        default="both",
    )
    degrade: str | None = option(
        "Degrade the reduced pictures as a camera does before they are enlarged: KEY=VALUE,... of jpeg "
        "(quality), noise (levels of 255), blur (px), sharpening (share).",
        metavar="KEY=VALUE,...",
        parse=parsing.name,
    )


class SuperresOutput(Shown):
    """Figures, and the enlarged views."""

    save: Path | None = option("Write enlarged views: <name>_left.png, _right.png.", metavar="FOLDER")


def command(
    given: SuperresInput,
    shown: SuperresOutput,
    network: Upscaling,
    compute: Exact,
    messages: options.Messages,
) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside. Degraded ones are also denoised by OpenCV and
    enlarged by bicubic.

    $ pam eval superres --scale 4 --data 'kitti2012/testing:kitti2012?first=20' --save larger/ --compare
    $ pam eval superres --scale 4 --data kitti2012/testing:kitti2012 --degrade jpeg=75,noise=3 --baseline-only
    """
    console = messages.console(jsonl=shown.as_json)
    predictions, save = given.predictions, shown.save
    sources = {"--predictions": predictions, "--weights": network.weights}
    at_most_one({**sources, "--baseline-only": given.baseline_only})
    if (predictions is not None or given.baseline_only) and (given.right_view != "both" or save is not None):
        raise UsageError("--right-view and --save are about a network, and none is run")
    if predictions is not None and given.degrade is not None:
        raise UsageError("--degrade: the pictures in --predictions were made of others")
    shown.check(network.weights)
    sets, keep = given.opened(console), None
    if save is not None:
        from pamcli.evaluation.saved_views import SavedViews

        keep = SavedViews(save, one_set(sets, "--save"), network.weights, overwrite=shown.overwrite)
    from pamcli.evaluation.methods import FilesMethod, NetworkMethod
    from pamcli.evaluation.superres import Superres
    from pamcli.evaluation.superres_baselines import DenoisedBicubic
    from pamcli.imaging.degrading import parse_degradation

    degradation = None if given.degrade is None else parse_degradation(given.degrade, "--degrade")
    methods: list[Method] = [] if degradation is None else [DenoisedBicubic(degradation)]
    factor = network.scale or DEFAULT_SCALE
    if not isinstance(factor, int):
        raise UsageError(f"--scale {factor:g}: pairs are measured at whole scales", "2, 3 or 4")
    if predictions is not None:
        one_set(sets, "--predictions")
        methods.append(FilesMethod(predictions, allow_missing=given.allow_missing))
    elif not given.baseline_only:
        upscaler, path = network.load(compute, console)
        factor = int(upscaler.scale)
        name = Path(network.name).stem + (", ensemble" if network.ensemble else "")
        methods.append(NetworkMethod(upscaler, name, path, given.right_view, keep))
    measured(Superres(factor, degradation), sets, methods, shown, console)
