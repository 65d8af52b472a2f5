"""pam eval superres: PSNR and SSIM of enlarged pairs in the literature's protocols, beside bicubic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pamcli.cli import evaluation, options
from pamcli.cli.groups import flag, option
from pamcli.cli.superres import Upscaling
from pamcli.errors import UsageError
from pamcli.files.atomic import Kept, check_writable
from pamcli.files.finding import listed
from pamcli.files.outputs import check_collisions
from pamcli.files.pairing import PairName
from pamcli.registry.catalog import DEFAULT_UPSCALING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pamcli.data.source import Source


@dataclass(frozen=True, kw_only=True)
class Input(evaluation.Measured):
    """Pictures to measure."""

    baseline_only: bool = flag("Bicubic alone: no network is loaded.")
    right_view: Literal["both", "right", "left"] = option(
        "left: the network gets the left view twice. right: the right one. both: tells besides what the "
        "second view is worth, for up to twice the time.",
        default="both",
    )


@dataclass(frozen=True, kw_only=True)
class Output(evaluation.Shown):
    """Figures, and the enlarged views."""

    save: Path | None = option("Write enlarged views: <name>_left.png, _right.png.", metavar="FOLDER")


def command(
    given: Input,
    shown: Output,
    network: Upscaling,
    compute: evaluation.Exact,
    messages: options.Messages,
) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside.
    """
    console = messages.console()
    predictions, weights, save = given.predictions, network.weights, shown.save
    options.at_most_one(
        {"--predictions": predictions, "--weights": weights, "--baseline-only": given.baseline_only}
    )
    if (predictions is not None or given.baseline_only) and (given.right_view != "both" or save is not None):
        raise UsageError("--right-view and --save are about a network, and none is run")
    if predictions is None and given.allow_missing:
        raise UsageError("--allow-missing is about --predictions")
    evaluation.check_files(shown)
    sets = evaluation.open_sets(given.data, console)
    if save is not None:
        _check_saved(save, evaluation.one_set(sets, "--save"), shown.overwrite)
    from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod
    from pamcli.evaluation.results import WORST
    from pamcli.evaluation.superres_run import evaluate_superres

    method: Method | None = None
    factor = network.factor or 4
    if predictions is not None:
        evaluation.one_set(sets, "--predictions")
        method = FilesMethod(predictions, allow_missing=given.allow_missing)
    elif not given.baseline_only:
        from pamcli.cli.network import find_weights, load_upscaler

        name = weights or DEFAULT_UPSCALING[factor]
        path = find_weights(name, console)
        upscaler = load_upscaler(name, network.factor, compute, console, ensemble=network.ensemble)
        factor = upscaler.scale
        keep = None if save is None else partial(_save, Kept(), save)
        method = NetworkMethod(
            upscaler, name, path, given.right_view, keep, ", ensemble" if network.ensemble else ""
        )
    with console.progress("pairs", sum(map(len, sets))) as bar:
        found = evaluate_superres(
            sets,
            method,
            factor,
            compare=shown.compare,
            worst=WORST if shown.report else 0,
            advance=bar.advance,
        )
    evaluation.show(found, shown, console)


def _save(kept: Kept, folder: Path, name: str, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
    from pamcli.imaging.images import Picture, encode_picture

    for view, pixels in (("left", left), ("right", right)):
        file = folder / f"{name}_{view}.png"
        kept.write(file, encode_picture(Picture(pixels), ".png", name=str(file)))


def _check_saved(folder: Path, source: Source, overwrite: bool) -> None:
    """Raise UsageError, OutputError where the views cannot be written, or not without being asked."""
    outputs = [{view: folder / f"{name}_{view}.png" for view in ("left", "right")} for name in source.names]
    check_collisions([PairName(files.left, files.right, files.name) for files in source.files], outputs)
    files = [file for paths in outputs for file in paths.values()]
    existing = [file for file in files if file.exists()]
    if existing and not overwrite:
        count = len(existing)
        raise UsageError(f"{count} results exist already: {listed(existing)}", "--overwrite replaces them")
    for file in files:
        check_writable(file)
