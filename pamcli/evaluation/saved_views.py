"""Save the upscaled images of a data set while it is measured."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import check_collisions, check_existing, check_separate_folders
from pamcli.files.pairing import PairPaths
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.registry.catalog import list_network_files


class SavedViews:
    """A writer of <name>_left.png and <name>_right.png for each sample, for `NetworkMethod.keep`."""

    def __init__(
        self, folder: Path, sets: Sequence[Source], weights: str | Path | None, *, overwrite: bool
    ) -> None:
        """Prepare the folder.

        `weights`: the file that the network is loaded from. Raises UsageError, OutputError: the images cannot
        be written, or exist and may not be overwritten.
        """
        if len(sets) > 1:
            raise UsageError(
                f"`save` goes with one data set, {len(sets)} are given", "measure each by itself"
            )
        (source,) = sets
        self.folder, self.written = folder, set[Path]()
        outputs = [self._files(name) for name in source.names]
        pairs = [PairPaths(files.left, files.right, files.name) for files in source.files]
        check_collisions(pairs, outputs, list_network_files(weights))
        written = (file.parent for files in outputs for file in files.values())
        check_separate_folders(written, source.view_files)
        check_existing(outputs, overwrite=overwrite)
        for files in outputs:
            for file in files.values():
                check_writable(file)

    def _files(self, name: str) -> dict[str, Path]:
        return {view: self.folder / f"{name}_{view}.png" for view in ("left", "right")}

    def __call__(self, name: str, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
        """Write both images of a sample, (H, W, 3) RGB."""
        for file, pixels in zip(self._files(name).values(), (left, right), strict=True):
            if file.parent in self.written:
                require_folder(file.parent)
            write_atomically(file, encode_image(RgbImage(pixels), ".png", name=str(file)))
            self.written.add(file.parent)
