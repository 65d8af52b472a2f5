"""Process images: `pam disparity`, `superres`, `rectify`, `depth`, `export` and `view`."""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pamcli.cli.console import CLOSED_PIPE, Console, format_option_names
from pamcli.errors import BATCH_FAILED, DiskFullError, UsageError
from pamcli.settings.batches import (
    DepthSettings,
    ExportSettings,
    MatchSettings,
    RectifySettings,
    UpscaleSettings,
    ViewSettings,
)

if TYPE_CHECKING:
    from pamcli.batch.plan import Plan, Result
    from pamcli.batch.run import Batch

MANY = 10
"""Smallest number of pairs for which their rate is reported."""


def match(settings: MatchSettings, console: Console) -> None:
    """Compute the disparity map of an image pair: how far each left pixel is shifted in the right image, px.

    The images must be rectified (pam rectify): a point lies in the same row of both, and left pixel (y, x)
    matches right pixel (y, x - disparity). Paths of results are printed to stdout, all else to stderr.

    The shipped weights were trained on synthetic scenes and few real pairs. In streets and rooms, about one
    pixel in twenty is wrong by more than 3 px; --min-confidence removes most of them (pam guide confidence).

    $ pam disparity left.png right.png -o map.pfm --color-map map.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    from pamcli.batch.matching import match_files

    _run_batch(match_files(settings), console, network=settings.name)


def upscale(settings: UpscaleSettings, console: Console) -> None:
    """Upscale both images of a pair, each with detail from the other.

    The images must be rectified (pam rectify): a point lies in the same row of both. Bit depth (8 or 16),
    transparency, colour profile and EXIF data are kept. Paths of results are printed to stdout, all else to
    stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o upscaled/
    """
    from pamcli.batch.upscaling import upscale_files

    _run_batch(upscale_files(settings), console, network=settings.name)


def rectify(settings: RectifySettings, console: Console) -> None:
    """Rectify image pairs, so that a point lies in the same row of both images.

    The images keep their bit depth (8 or 16 bits). With --calibration, the calibration of the rectified
    images is written next to them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectification import rectify_files

    _run_batch(rectify_files(settings), console)


def convert(settings: DepthSettings, console: Console) -> None:
    """Convert stored disparity maps to depth maps and point clouds, in metres.

    Units per pixel and markers of unknown pixels are recognised for the formats of common programs; --scale
    and --invalid override them.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --image lefts/ --point-cloud clouds/
    """
    from pamcli.batch.depth import depth_files

    _run_batch(depth_files(settings), console)


def show(settings: ViewSettings, console: Console) -> None:
    """Show a result in the browser: image, disparity, depth, confidence, distances and point cloud.

    The page is served on this computer only, until Ctrl-C. Its address is printed on stdout.

    $ pam view disp.html
    $ pam view disp.pfm left.png --calibration calib.txt
    """
    import webbrowser

    from pamcli.batch.viewing import open_server

    server = open_server(settings)
    try:
        console.answer({"address": server.address}, server.address)
        console.inform("press Ctrl-C to stop")
        if not settings.no_browser and not webbrowser.open(server.address):
            console.warn("no browser found: open the address yourself")
        server.serve_forever()
    finally:
        server.server_close()


def colmap(settings: ExportSettings, console: Console) -> None:
    """Write rectified images, their cameras and their depth maps as a workspace for COLMAP.

    The folder contains images/, stereo/depth_maps/ and rig_config.json for `colmap rig_configurator`. For a
    single pair, it also contains a sparse model with both poses and coloured points.

    $ pam export colmap left.png right.png --calibration calib.txt -o scene/
    $ pam export colmap lefts/ rights/ --calibration calib.txt -o scenes/
    """
    from pamcli.batch.export import export_files

    _run_batch(export_files(settings, "colmap"), console, network=settings.name)


def nerfstudio(settings: ExportSettings, console: Console) -> None:
    """Write the rectified images of a pair, their cameras and their depth maps for nerfstudio.

    The folder contains images/, depths/ (16 bits, mm), points.ply and transforms.json, which `ns-train`
    reads.

    $ pam export nerfstudio left.png right.png --calibration calib.txt -o nerf/
    $ pam export nerfstudio left.png right.png --focal 700 --baseline 120mm -o studio/
    """
    from pamcli.batch.export import export_files

    _run_batch(export_files(settings, "nerfstudio"), console, network=settings.name)


def _run_batch(batch: "Batch", console: Console, *, network: str | Path | None = None) -> None:
    """Process a batch and report it; exit with 6 if a pair failed, or raise the error of a single pair.

    network: name of the network, if there is one.
    """
    plan = batch.plan
    if plan.returned:
        _check_stdout(plan, console)
    if network is not None and not plan.uses_ray:
        with console.starting(str(network)):
            batch.start()
    has_titles, counts, began = False, {"ok": 0, "skipped": 0, "failed": 0}, time.monotonic()
    try:
        with console.progress("pairs", plan.total) as bar:
            batch.bar = None if console.quiet else bar
            with closing(iter(batch)) as results:
                for each in results:
                    counts[each.status] += 1
                    _report(each, console, alone=not plan.many)
                    rows = each.facts.get("distances")
                    if rows and not console.jsonl:
                        named = [{"image": each.job.names[0], **row} for row in rows]
                        console.table(named, titles=not has_titles)
                        has_titles = True
    except (KeyboardInterrupt, SystemExit, DiskFullError) as stop:
        if plan.many and getattr(stop, "code", None) != CLOSED_PIPE:
            console.inform(f"stopped after {_summarize(counts)}; {batch.resume_hint}")
        raise
    if not console.jsonl:
        for path in batch.made:
            console.inform(str(path)) if has_titles else console.path(path)
    shard = plan.shard
    if shard is not None and not any(counts.values()):
        console.inform(f"shard {shard[0]}/{shard[1]} is empty: the batch has fewer pairs")
    elif plan.many or shard is not None:
        rate = counts["ok"] / (time.monotonic() - began)
        console.inform(_summarize(counts) + (f", {rate:.2f} pairs/s" if counts["ok"] >= MANY else ""))
    if counts["failed"] and plan.many:
        raise typer.Exit(BATCH_FAILED)


def _check_stdout(plan: "Plan", console: Console) -> None:
    """Raise UsageError if a result cannot go to stdout."""
    for name, place in vars(plan.settings).items():
        if place == "-" and name not in ("pairs", "inputs"):
            if console.jsonl:
                message = f"cannot write both `{name}` - and `jsonl` to stdout"
                raise UsageError(message, "drop one of them")
            if sys.stdout.isatty():
                message = f"`{name}` - cannot write binary data to a terminal"
                raise UsageError(message, "use a pipe, or name a file")


def _report(result: "Result", console: Console, *, alone: bool) -> None:
    """Report the result of a pair; raise its error if it is the only one."""
    job, error = result.job, result.error
    for warning in result.warnings:
        console.warn(f"{job.names[0]}: {warning}")
    if error is not None and job.names:
        files = [*job.names, *map(str, job.places.values())]
        if not any(name in str(error) for name in files):
            error.message = f"{job.names[0]}: {error.message}"
    if console.jsonl:
        console.record(result.record(format_option_names))
    elif result.data is not None:
        console.binary(result.data)
    elif result.status == "ok":
        for name, path in result.outputs.items():
            if name not in job.videos:  # they are finished at the end
                # stdout holds the table of distances alone
                console.inform(str(path)) if "distances" in result.facts else console.path(path)
    if result.status == "skipped":
        console.detail(f"{job.names[0]}: skipped, because all results exist")
    if error is not None:
        if alone:
            raise error
        console.error(str(error), error)


def _summarize(counts: dict[str, int]) -> str:
    """Count the pairs by status."""
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no pairs"
