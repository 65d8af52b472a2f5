"""Run `pam export colmap` and `pam export nerfstudio`."""

from typing import Any

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import ExportSettings


def colmap(settings: ExportSettings, console: Console) -> None:
    """Write rectified images, their cameras and their depth maps as a workspace for COLMAP.

    The folder contains images/, stereo/depth_maps/ and rig_config.json for `colmap rig_configurator`. For a
    single pair, it also contains a sparse model with both poses and coloured points.

    $ pam export colmap left.png right.png --calibration calib.txt -o scene/
    $ pam export colmap lefts/ rights/ --calibration calib.txt -o scenes/
    """
    _export(settings, console, "colmap")


def nerfstudio(settings: ExportSettings, console: Console) -> None:
    """Write the rectified images of a pair, their cameras and their depth maps for nerfstudio.

    The folder contains images/, depths/ (16 bits, mm), points.ply and transforms.json, which `ns-train`
    reads.

    $ pam export nerfstudio left.png right.png --calibration calib.txt -o nerf/
    $ pam export nerfstudio left.png right.png --focal 700 --baseline 120mm -o studio/
    """
    _export(settings, console, "nerfstudio")


def _export(settings: ExportSettings, console: Console, kind: Any) -> None:
    from pamcli.batch.export import Export

    export = Export(settings, kind)
    try:
        run_batch(lambda _: export.batch, export.settings, console, loading=settings.name)
    finally:  # also if a pair failed: the cameras are those of the others
        for path in export.write_cameras():
            if not console.jsonl:
                console.path(path)
