"""The pairs of any data set as those that training patches are cut from."""

from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.flickr1024.archives import Location
from pamcli.flickr1024.pairs import Pair, Pairs


def listed_pairs(source: Source, name: str) -> Pairs:
    """The pairs of a data set that pam reads. Raises UsageError: one that is not read from two pictures."""
    if not source.of_pictures:  # packed patches, procedural scenes
        raise UsageError(
            f"the samples of {name} are no pairs of pictures on disk", "patches are cut from those"
        )
    pairs = [
        Pair(name, each.name, Location(each.left), Location(each.right), halved=name == "middlebury")
        for each in source.files
    ]
    return Pairs(tuple(pairs), source.unpaired)
