"""Compute pseudo-labels of real pairs: disparities that a network and block matching agree on.

`UnlabelledPairs` are the pairs without ground truth of a training run: to learn (pseudo-labels) and to
validate (block matching).
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base
from PIL.Image import Exif

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_separate_folders
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.imaging.dense_matching import match_densely, match_reliably
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import RgbImage, encode_image, read_image, to_grey, to_uint8
from pamcli.imaging.raster import parse_exif
from pamcli.imaging.resize import resize_nearest
from pamcli.inference.images import resize_image
from pamcli.inference.matcher import StereoMatcher
from pamcli.registry.catalog import list_network_files
from pamcli.registry.resolution import choose_matching_size

LARGEST = (1250, 900)  # width and height to which larger images are reduced
RESOLUTIONS = 850_000, 1_500_000  # pixels to which smaller images are upscaled for the network, ...
MOST_UPSCALED = 2.0  # ... and maximum factor
LARGEST_DISAGREEMENT = 1.0  # maximum difference between the disparities of both resolutions, px
MOST_DISPARITY = 207  # of block matching, px
LEAST = 0.3  # minimum share of labelled pixels for a pair to be used
MIRRORED = "-mirrored"  # name suffix of mirrored pairs
PARTS = {"disparity": ".npy", "left": ".png", "right": ".png"}  # folders, with their file suffixes
Rgb = NDArray[np.uint8]
Values = NDArray[np.float32]
Wanted = Mapping[str, tuple[int, bool]]  # pairs by name: source index, and whether mirrored
LOG = logging.getLogger("pamcli")
HASH_NOTE = "labels of the images with sha256 "  # in the notes of labelled images
CONTRADICTION = 2.0  # minimum difference that prevents a label, px


def label_files(folder: Path, name: str) -> dict[str, Path]:
    """Return the files of a labelled pair in writing order; the last one completes the pair."""
    flat = name.replace("/", "_")
    return {part: folder / part / f"{flat}{suffix}" for part, suffix in PARTS.items()}


def select_pairs_to_label(
    source: Source,
    folder: Path,
    *,
    mirrored: bool,
    overwrite: bool,
    networks: Sequence[str | Path | None] = (),
    truths: Iterable[Path] = (),
) -> dict[str, tuple[int, bool]]:
    """Return the pairs to label with their source indices and mirroring; log how many exist already.

    `networks`, `truths`: files that labels must not overwrite. Raises UsageError: pairs that cannot be
    labelled there, or images that changed since labelling; InputError: an image of a label cannot be read.
    """
    if source.endless:
        label = source.spec.label if source.spec else "the data set"
        raise UsageError(f"{label} has ground truth at every pixel", "label other pairs")
    inputs = [*source.view_files, *truths, *chain.from_iterable(map(list_network_files, networks))]
    check_separate_folders((folder / part for part in PARTS), inputs)
    wanted = {name: (index, False) for index, name in enumerate(source.names)}
    turned = {name + MIRRORED: (index, True) for name, (index, _) in wanted.items()} if mirrored else {}
    if double := wanted.keys() & turned.keys():
        raise UsageError(f"a pair is already called {quote(min(double))}", "rename it, or omit --mirrored")
    wanted |= turned
    files = {name: label_files(folder, name) for name in wanted}
    owners: dict[Path, str] = {}
    for name, each in files.items():
        if (other := owners.setdefault(each["right"], name)) != name:
            raise UsageError(f"{quote(other)} and {quote(name)} share a label file", "rename one of them")
    # A killed run leaves one incomplete pair; more are foreign files.
    present = {name: [path for path in each.values() if path.exists()] for name, each in files.items()}
    complete = [name for name, paths in present.items() if len(paths) == len(PARTS)]
    partial = [name for name, paths in present.items() if 0 < len(paths) < len(PARTS)]
    if len(partial) > 1 and not overwrite:
        message = f"{quote(folder)} has files that are not labels, such as {quote(present[partial[0]][0])}"
        raise UsageError(message, "use another folder")
    changed = [name for name in complete if _is_changed(source, *wanted[name], files[name])]
    if changed and (not overwrite or len(changed) == len(complete)):
        message = f"{quote(folder)} has labels of other images with the names of these pairs"
        problem = f"{message}: {join_names(changed)}"
        raise UsageError(problem, "use another folder, or `overwrite` if only some of the images changed")
    if changed:
        LOG.warning(f"the images of {join_names(changed)} changed after labelling: labelling them again")
    own = {each["right"].stem for each in files.values()}
    own |= {f"{stem}{MIRRORED}" for stem in own}
    if others := sorted({path.stem for path in (folder / "right").glob("*.png")} - own):
        count = pluralize(len(others), "other pair")
        LOG.info(f"{quote(folder)} keeps the labels of {count}: {join_names(others)}")
    if overwrite:
        return wanted
    if complete:
        LOG.info(f"{len(complete)} of {pluralize(len(wanted), 'pair')} have labels already")
    return {name: pair for name, pair in wanted.items() if name not in complete}


def _load_views(sample: Sample, mirrored: bool) -> tuple[Rgb, Rgb]:
    """Return the 8-bit images of a pair, exchanged and mirrored if requested."""
    left, right = (sample.right[:, ::-1], sample.left[:, ::-1]) if mirrored else (sample.left, sample.right)
    return to_uint8(left), to_uint8(right)


def _hash(views: Iterable[Rgb]) -> str:
    digest = hashlib.sha256()
    for view in views:
        digest.update(f"{view.shape}".encode() + np.ascontiguousarray(view).tobytes())
    return digest.hexdigest()


def _is_changed(source: Source, index: int, mirrored: bool, files: Mapping[str, Path]) -> bool:
    """Return whether labels were made from images other than the present ones; log if unknown."""
    try:
        views = _load_views(source.load(index), mirrored)
        noted = parse_exif(read_image(files["right"]).exif).get(Base.ImageDescription)
    except InputError as error:
        LOG.warning(f"{quote(source.names[index])}: keeping its labels, but {error.message}")
        return False
    return bool(noted != HASH_NOTE + _hash(views))


def label_pairs(
    matcher: StereoMatcher,
    source: Source,
    selected: Wanted,
    folder: Path,
    second: StereoMatcher | None = None,
) -> Iterator[tuple[str, float | InputError]]:
    """Label the pairs of `select_pairs_to_label`; yield each name with its share of labels or InputError."""
    for name, (index, mirrored) in selected.items():
        try:
            whole = _load_views(source.load(index), mirrored)
            left, right = map(_downscale, whole)
            found = find_labels(matcher, left, right, second)
        except InputError as error:
            yield name, error
            continue
        share = float(np.isfinite(found).mean())
        if share >= LEAST:
            content = {"disparity": encode_disparity(found, ".npy").data}
            notes = Exif()
            notes[Base.ImageDescription] = HASH_NOTE + _hash(whole)
            for side, view in (("left", left), ("right", right)):
                content[side] = encode_image(RgbImage(view, exif=notes.tobytes()), ".png", name=name)
            for part, file in label_files(folder, name).items():
                write_atomically(file, content[part])
        else:  # outdated labels would be learned
            for file in reversed(earlier := [*filter(Path.exists, label_files(folder, name).values())]):
                file.unlink()
            if earlier:
                LOG.warning(f"{quote(name)}: deleted its earlier labels, because too few pixels have one now")
        yield name, share


def find_labels(matcher: StereoMatcher, left: Rgb, right: Rgb, second: StereoMatcher | None = None) -> Values:
    """Compute pseudo-labels (H, W) of a pair (H, W, 3), px, NaN = none; sets `match_size` of the matchers."""
    found = _match_both_views(matcher, left, right)
    if second is not None:
        return combine_networks(found, _match_both_views(second, left, right))
    matched = match_densely(to_grey(left), to_grey(right), 0, min(MOST_DISPARITY, left.shape[1] // 2))
    blocks = np.where(matched.first_seen & (matched.first >= 0), matched.first, np.float32(np.nan))
    return combine_with_blocks(found, blocks)


def _match_both_views(matcher: StereoMatcher, left: Rgb, right: Rgb) -> Values:
    """Return the mean disparity (H, W) of both resolutions, px, NaN where they differ or it is occluded."""
    pixels = left.shape[0] * left.shape[1]
    found = []
    for factor in sorted({float(np.clip((most / pixels) ** 0.5, 1, MOST_UPSCALED)) for most in RESOLUTIONS}):
        matcher.match_size = factor
        found.append(matcher(left, right, extras={"visible"}).disparity_where(visible=True))
    return np.where(np.ptp(found, axis=0) <= LARGEST_DISAGREEMENT, np.mean(found, axis=0), np.float32(np.nan))


def combine_networks(first: Values, second: Values) -> Values:
    """Return the mean (H, W) of two networks' disparities, px, NaN where missing or inconsistent."""
    same = np.abs(first - second) <= CONTRADICTION  # False for NaN
    return np.where(same, (first + second) / 2, np.float32(np.nan)).astype(np.float32)


def combine_with_blocks(network: Values, blocks: Values) -> Values:
    """Combine both into labels (H, W), px; NaN where they differ, or only block matching finds one."""
    label = np.where(np.isfinite(blocks), (network + blocks) / 2, network)
    contradicted = np.abs(network - blocks) > CONTRADICTION  # False for NaN
    return np.where(contradicted, np.float32(np.nan), label).astype(np.float32)


def _downscale(view: Rgb) -> Rgb:
    image = Image.fromarray(view)
    image.thumbnail(LARGEST, Image.Resampling.LANCZOS)
    return np.asarray(image)


FEWEST = 5  # minimum number of pairs to hold some out
MOST_HELD_OUT, MOST_LEARNED = 16, 100  # bound the time for labelling and validation
SEARCH_RANGE = 0.25  # search range of block matching, as a fraction of the width
BLOCK_PIXELS = 1_000_000  # for block matching, which needs four bytes per pixel and disparity
REMARK = " held out, against block matching"

# minimum relative decrease of D1 that counts as better; differences of less than 1/17 are noise
CLEARLY = 0.1


class UnlabelledPairs(Source):
    """Pairs of a data set at matching resolution, with disparities from a folder."""

    def __init__(self, source: Source, indices: Sequence[int], folder: Path) -> None:
        self.source, self.indices, self.folder = source.without_truth(), tuple(indices), folder
        self.names = tuple(source.names[index] for index in indices)
        self.spec = source.spec

    def label_of(self, index: int) -> Path:
        return self.folder / f"{self.indices[index]:06d}.tif"

    def list_unlabelled(self) -> list[int]:
        return [index for index in range(len(self)) if not self.label_of(index).exists()]

    def write_label(self, index: int, find: Callable[[Rgb, Rgb], Values]) -> None:
        """Compute the disparity map of a pair by `find`, and write it."""
        path = self.label_of(index)
        write_atomically(path, encode_disparity(find(*self.views(index)), path.suffix).data)

    def views(self, index: int) -> tuple[Rgb, Rgb]:
        """Load both images (H, W, 3); raise InputError on failure."""
        sample = self.source.load(self.indices[index])
        size = choose_matching_size("auto", *sample.left.shape[:2])
        views = [resize_image(to_uint8(view), *size) for view in (sample.left, sample.right)]
        return to_uint8(views[0]), to_uint8(views[1])

    def load(self, index: int) -> Sample:
        """Load a pair with its label; raise InputError, also if the label is missing or damaged."""
        left, right = self.views(index)
        path, hint = self.label_of(index), "start a new run, which computes new labels"
        try:
            disparity = read_disparity(path)
        except InputError as error:
            raise InputError(error.message, hint) from error
        if disparity.shape != left.shape[:2]:
            raise InputError(f"{quote(path)} has another size than the pair {quote(self.names[index])}", hint)
        return Sample(self.names[index], left, right, disparity=disparity)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


def split_pairs(source: Source, share: float, folder: Path) -> tuple[UnlabelledPairs, UnlabelledPairs | None]:
    """Split pairs into those to train on and evenly spaced held-out ones, None if too few.

    Neighbours of held-out pairs are dropped first, because adjacent video frames are nearly equal.
    """
    count = len(source)
    held_out: list[int] = []
    if share and count >= FEWEST:
        most = min(MOST_HELD_OUT, max(1, round(share * count)))
        held_out = [int((place + 0.5) * count / most) for place in range(most)]
    rest = [index for index in range(count) if index not in set(held_out)]
    if held_out and len(rest) > MOST_LEARNED:
        gap = (len(rest) - MOST_LEARNED) // (2 * len(held_out))
        near = {index + step for index in held_out for step in range(-gap, gap + 1)}
        rest = [index for index in rest if index not in near]
    if len(rest) > MOST_LEARNED:
        rest = [rest[int(place * len(rest) / MOST_LEARNED)] for place in range(MOST_LEARNED)]
    # Earlier versions call this folder "aside", too.
    kept = UnlabelledPairs(source, held_out, folder / "aside") if held_out else None
    return UnlabelledPairs(source, rest, folder), kept


def describe_split(learned: UnlabelledPairs, held_out: UnlabelledPairs | None) -> list[str]:
    count = len(learned.source)
    if held_out is None:
        few = f"{count} pairs are too few to hold some out (at least {FEWEST})"
        return [f"{few}, so the new weights cannot be compared with the initial ones"]
    lines = [f"held out for validation: {len(held_out)} of {count} pairs ({join_names(held_out.names)})"]
    if len(learned) + len(held_out) < count:
        lines.append(f"training uses {len(learned)} of the others, evenly spaced")
    return lines


def has_labels(pairs: UnlabelledPairs) -> bool:
    """Return whether any pixel has a positive label; raise InputError for a missing or damaged file."""
    labels = (pairs.load(index).disparity for index in range(len(pairs)))
    return any(label is not None and bool((label > 0).any()) for label in labels)


def match_blocks(left: Rgb, right: Rgb) -> Values:
    """Return disparities (H, W), px, of a pair (H, W, 3) where block matching is confident; else NaN."""
    height, width = left.shape[:2]
    times = max(1.0, (height * width / BLOCK_PIXELS) ** 0.5)
    rows, columns = round(height / times), round(width / times)
    one, other = (to_grey(to_uint8(resize_image(view, rows, columns))) for view in (left, right))
    found = match_reliably(one, other, max(16, int(SEARCH_RANGE * columns)))
    return resize_nearest(found, width, height) * np.float32(width / columns)
