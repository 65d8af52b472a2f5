"""Read any image pairs: in folders with equal stems, of templates, in a list, or both views in one file."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pamcli.data.listing import Listed, Part, list_by_stem, pair_files
from pamcli.data.source import Files, make_info
from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import read_pair_list, resolve_packed
from pamcli.files.paths import list_entries, list_images_by_stem, match_template, quote, states_layout
from pamcli.files.suffixes import DISPARITY_INPUT_SUFFIXES, TABLE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity_file
from pamcli.imaging.images import StereoPair
from pamcli.imaging.packed_views import make_rectilinear, read_packed_pair
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    right_truth: dict[str, Path] = {}
    layout = keys.get("packed", "auto")
    if "packed" in keys or (not keys.keys() - {"scale"} and _is_packed(root)):
        if others := keys.keys() & {"left", "right", "disparity"}:
            raise UsageError(f"cannot use both the key {min(others)} and files that hold both views")
        pairs = resolve_packed([str(root)], by_suffix=layout == "auto").pairs
        lefts = rights = {pair.key or "": pair.left for pair in pairs}
        truth = list_by_stem(root / "disparity", DISPARITY_INPUT_SUFFIXES)
    elif root.is_file():
        if keys.keys() - {"scale"}:
            raise UsageError(
                f"{quote(root)} is a list of files, so the keys left, right and disparity do not apply"
            )
        pairs = [*read_pair_list(root, root=Path(os.path.abspath("/")))]
        lefts = {pair.key or "": pair.left for pair in pairs}
        if len(lefts) < len(pairs):
            raise UsageError(f"{quote(root)} contains two left images with the same name before the suffix")
        rights = {pair.key or "": pair.right for pair in pairs if pair.right is not None}
        truth = {pair.key or "": pair.output for pair in pairs if pair.output is not None}
    elif keys.keys() - {"scale"}:
        lefts, rights, truth = (_match_files(root, keys, name) for name in ("left", "right", "disparity"))
    else:
        # Two images with one stem in a folder are an error, as either could be meant.
        left, right = root / "left", root / "right"
        lefts = list_images_by_stem(left) if left.is_dir() else {}
        rights = list_images_by_stem(right) if right.is_dir() else {}
        truth = list_by_stem(root / "disparity", DISPARITY_INPUT_SUFFIXES)
        right_truth = list_by_stem(root / "right_disparity", DISPARITY_INPUT_SUFFIXES)
    for path in truth.values():
        if path.suffix.lower() not in (known_suffixes := (*DISPARITY_INPUT_SUFFIXES, *TABLE_SUFFIXES)):
            known = ", ".join(known_suffixes)
            raise UsageError(f"cannot read the ground truth {quote(path)}", f"supported formats: {known}")
    scale = _parse_scale(keys["scale"]) if "scale" in keys else None
    parts = [
        Part("disparity", "ground truth (disparity)", partial(_read, "disparity", scale=scale)),
        Part("right_disparity", read=partial(_read, "right_disparity", scale=scale)),
    ]
    read = partial(_read_packed, layout=layout) if lefts is rights else None
    places = {"disparity": truth, "right_disparity": right_truth}
    return pair_files(lefts, rights, parts, places, read=read)


def _is_packed(root: Path) -> bool:
    """Return True for a file that holds both views, and for a folder of such files."""
    if root.is_file():
        return states_layout(root)
    entries = dict(list_entries(root))
    return "left" not in entries and any(states_layout(root / name) for name in entries)


def _read_packed(files: Files, layout: Any) -> StereoPair:
    name = str(files.left)
    return make_rectilinear(read_packed_pair(files.left, layout, max_pixels=DEFAULT_MAX_PIXELS, name=name))


def _read(name: str, path: Path, scale: float | None) -> dict[str, Any]:
    try:
        found = read_disparity_file(path, scale=scale)
    except InputError as error:  # `scale` as an option is for predictions
        hint = error.hint and error.hint.replace("with `scale` N", "with the key ?scale=N")
        raise InputError(error.message, hint) from None
    return {name: found.disparity, "units": found.units}


def _parse_scale(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        hint = "units per pixel, such as scale=256"
        raise UsageError(f"scale must be a number, got {text}", hint) from None


def _match_files(root: Path, keys: Mapping[str, str], name: str) -> dict[str, Path]:
    template = keys.get(name)
    if template is None and name == "disparity":
        return {}
    if template is None or "{}" not in template:
        given = "nothing" if template is None else repr(template)
        message = f"the key {name} must be a template with {{}}, got {given}"
        raise UsageError(message, "for example left={}_L.png&right={}_R.png")
    return match_template(str(root / template))


INFO = make_info("pairs", open_source)
