"""Run `pam eval` and `pam submit`."""

import shutil
from itertools import starmap
from typing import TYPE_CHECKING

from pamcli.cli.console import Console
from pamcli.cli.groups import make_name_argument
from pamcli.settings.evaluation import (
    EvaluateDisparitySettings,
    EvaluateSettings,
    EvaluateSuperresSettings,
    SubmitSettings,
)

if TYPE_CHECKING:
    from pamcli.evaluation.results import Evaluation


def disparity(settings: EvaluateDisparitySettings, console: Console) -> None:
    """Evaluate the disparity maps of networks, or of files from any program, on data sets.

    Metrics are pooled over all pixels of a data set (first table), and averaged over its images.

    $ pam eval disparity --data kitti2015:kitti --method ours=pasmnet2 --method opencv --report both.html
    $ pam eval disparity --data kitti2015:kitti --predictions made/ --protocol kitti --protocol raft-stereo
    """
    from pamcli.evaluation.disparity import measure_disparity

    _show(measure_disparity(settings, console), settings, console)


def superres(settings: EvaluateSuperresSettings, console: Console) -> None:
    """Evaluate the upscaled images of a network, or of files from any program, on data sets.

    Images are cropped to a multiple of the scale, downscaled with MATLAB's bicubic filter, rounded to 8 bits,
    upscaled, and compared in 8 bits. Bicubic upscaling is always measured too; with --degrade, so is
    denoising by OpenCV followed by bicubic upscaling.

    $ pam eval superres --scale 4 --data 'kitti2012/testing:kitti2012?first=20' --save upscaled/ --compare
    $ pam eval superres --scale 4 --data kitti2012/testing:kitti2012 --degrade jpeg=75,noise=3 --baseline-only
    """
    from pamcli.evaluation.superres import measure_superres

    _show(measure_superres(settings, console), settings, console)


def _show(evaluation: "Evaluation", settings: EvaluateSettings, console: Console) -> None:
    """Write the requested files, then print the tables or everything as JSON."""
    try:
        if settings.per_image or settings.report or settings.table:
            from pamcli.evaluation.report import write_files

            write_files(evaluation, settings)
    finally:  # hours of work are printed even if a file cannot be written
        if console.jsonl:
            console.record(evaluation.json())
        else:
            # A table on stdout without these facts could not be compared with others.
            lines = [*starmap("{}: {}".format, evaluation.facts), *map("note: {}".format, evaluation.notes)]
            tables = evaluation.text(shutil.get_terminal_size().columns).split("\n")
            for line in (*tables, "", *lines):
                console.result(line)


def protocols(console: Console, name: str | None = make_name_argument("the protocol", "protocols")) -> None:
    """List the evaluation protocols of papers and benchmarks, for --protocol.

    With a name: the metrics of the protocol, differences between data sets, and its source.

    $ pam eval protocols
    $ pam eval protocols raft-stereo
    """
    from pamcli.evaluation.protocols import PROTOCOLS, check_protocol

    if name is not None:
        check_protocol(name)
    for key in [name] if name else PROTOCOLS:
        row = PROTOCOLS[key]
        rules = {**row.by_data, "any data": row.rules}
        metrics = {data: each.describe_metrics() for data, each in rules.items()}
        lines = [f"{key:18} {row.about}"]
        if name is not None:
            lines = [row.about, f"source: {row.source}", ""]
            for data, texts in metrics.items():
                lines += [f"{data}:", *(f"  {text}" for text in texts)]
        entry = {"name": key, "about": row.about, "source": row.source, "figures": metrics}
        console.answer(entry, *lines)


def submit(settings: SubmitSettings, console: Console) -> None:
    """Write a submission archive for KITTI 2012, KITTI 2015, Middlebury or ETH3D.

    The results are a network's, or files (--predictions). The archive is read back and verified; missing
    images are reported before the network runs.

    $ pam submit --data middlebury:MiddEval3 -o middlebury.zip
    $ pam submit --data middlebury:MiddEval3 --weights pasmnet -o pasmnet.zip
    """
    from pamcli.evaluation import submissions

    written = submissions.submit(settings, console)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.images} images, {written.files} files, verified")
    console.path(settings.output)
