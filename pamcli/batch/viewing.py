"""Prepare the pages that `pam view` serves: stored ones, or a new one of a disparity map."""

from __future__ import annotations

from pamcli.batch import LOG
from pamcli.batch.camera_files import load_rectified_calibration
from pamcli.batch.depth import check_same_size
from pamcli.errors import UsageError
from pamcli.files.paths import require_file
from pamcli.files.suffixes import DISPARITY_INPUT_SUFFIXES, TABLE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity, read_disparity_file
from pamcli.imaging.images import read_image
from pamcli.settings.batches import ViewSettings
from pamcli.viewing.page import render_page
from pamcli.viewing.server import INDEX, PageServer, read_folder, serve_one


def open_server(settings: ViewSettings) -> PageServer:
    """Return the server of a result. Raises UsageError, InputError."""
    result = settings.result
    if result.is_dir():
        pages = sorted(page.name for page in result.glob("*.html") if page.is_file())
        if not pages:
            hint = "write pages with `pam disparity ... --page FOLDER`"
            raise UsageError(f"{result} contains no page", hint)
        return PageServer(read_folder(result), INDEX if INDEX in pages else pages[0], settings.port)
    require_file(result)
    if result.suffix.lower() == ".html":
        if settings.image is not None:
            raise UsageError(f"cannot use both the page {result} and IMAGE", "drop the image")
        return PageServer(read_folder(result.parent), result.name, settings.port)
    if result.suffix.lower() not in (suffixes := (*DISPARITY_INPUT_SUFFIXES, *TABLE_SUFFIXES)):
        known = f"pages (.html) and disparity maps ({', '.join(suffixes)})"
        raise UsageError(f"{result} has the suffix {result.suffix or '(none)'}", f"pam view shows {known}")
    return PageServer(serve_one(render_result(settings)), INDEX, settings.port)


def render_result(settings: ViewSettings) -> bytes:
    """Render the page of a disparity map with its left image. Raises UsageError, InputError."""
    stored = read_disparity_file(settings.result, scale=settings.scale, invalid=settings.invalid)
    if settings.image is None:
        message = f"the left image of the disparity map {settings.result} is required"
        raise UsageError(message, "add it: pam view disp.pfm left.png")
    for warning in stored.warnings:
        LOG.warning("%s: %s", settings.result, warning)
    disparity, left = stored.disparity, read_image(settings.image).pixels
    check_same_size(settings.image, left, settings.result, disparity)
    confidence = None
    if settings.confidence is not None:
        units = 65535 if settings.confidence.suffix.lower() == ".png" else 1  # as `pam disparity` writes it
        confidence = read_disparity(settings.confidence, scale=units)
        check_same_size(settings.confidence, confidence, settings.result, disparity)
    calibration = None
    if settings.calibration_files or settings.focal is not None:
        calibration = load_rectified_calibration(settings)
    title = f"{settings.result.name}, {settings.image.name}"
    return render_page(title, left, disparity, confidence=confidence, calibration=calibration)
