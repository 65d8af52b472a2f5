"""List the image pairs of any data set, to cut training patches from."""

import os
from pathlib import Path

from pamcli.data.open import names_source, open_data, parse_data
from pamcli.errors import UsageError
from pamcli.files.paths import quote
from pamcli.flickr1024.archives import ImageLocation
from pamcli.flickr1024.pairs import Pair, Pairs, find_published_pairs


def pairs_at(place: str, split: str = "train", source: str = "flickr1024") -> Pairs:
    """Return the pairs of a data set (NAME:PATH), or of a published folder or archive.

    Raises:
        UsageError: If the data set is unknown or has no image files.
        InputError: If the files cannot be read.
    """
    if not names_source(place) or Path(place).exists():
        return find_published_pairs(Path(os.path.expanduser(place)), split, source)
    return data_pairs(place)


def data_pairs(data: str) -> Pairs:
    """Return the pairs of a data set, NAME:PATH. Raises the errors of `pairs_at`."""
    spec = parse_data(data)
    source, name = open_data(spec), spec.info.name
    if not source.of_pictures:  # packed patches, procedural scenes
        said = f"the samples of {name} are no pairs of pictures on disk"
        raise UsageError(said, "patches are cut from those")
    if source.times != 1:
        raise UsageError(f"{quote(data)} is of smaller pictures than those on disk", "leave out `size`")
    pairs = [
        Pair(
            name, each.name, ImageLocation(each.left), ImageLocation(each.right), halved=name == "middlebury"
        )
        for each in source.files
    ]
    return Pairs(tuple(pairs), source.unpaired)
