"""Process images: `pam disparity`, `superres`, `rectify`, `depth`, `export` and `view`."""

from pamcli.cli.console import Console, run_batch
from pamcli.settings.batches import (
    DepthSettings,
    ExportSettings,
    MatchSettings,
    RectifySettings,
    UpscaleSettings,
    ViewSettings,
)


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

    run_batch(match_files(settings), console, network=settings.name)


def upscale(settings: UpscaleSettings, console: Console) -> None:
    """Upscale both images of a pair, each with detail from the other.

    The images must be rectified (pam rectify): a point lies in the same row of both. Bit depth (8 or 16),
    transparency, colour profile and EXIF data are kept. Paths of results are printed to stdout, all else to
    stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o upscaled/
    """
    from pamcli.batch.upscaling import upscale_files

    run_batch(upscale_files(settings), console, network=settings.name)


def rectify(settings: RectifySettings, console: Console) -> None:
    """Rectify image pairs, so that a point lies in the same row of both images.

    The images keep their bit depth (8 or 16 bits). With --calibration, the calibration of the rectified
    images is written next to them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectification import rectify_files

    run_batch(rectify_files(settings), console)


def convert(settings: DepthSettings, console: Console) -> None:
    """Convert stored disparity maps to depth maps and point clouds, in metres.

    Units per pixel and markers of unknown pixels are recognised for the formats of common programs; --scale
    and --invalid override them.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --image lefts/ --point-cloud clouds/
    """
    from pamcli.batch.depth import depth_files

    run_batch(depth_files(settings), console)


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

    run_batch(export_files(settings, "colmap"), console, network=settings.name)


def nerfstudio(settings: ExportSettings, console: Console) -> None:
    """Write the rectified images of a pair, their cameras and their depth maps for nerfstudio.

    The folder contains images/, depths/ (16 bits, mm), points.ply and transforms.json, which `ns-train`
    reads.

    $ pam export nerfstudio left.png right.png --calibration calib.txt -o nerf/
    $ pam export nerfstudio left.png right.png --focal 700 --baseline 120mm -o studio/
    """
    from pamcli.batch.export import export_files

    run_batch(export_files(settings, "nerfstudio"), console, network=settings.name)
