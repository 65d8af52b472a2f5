"""Procedural scenes as a data set: made up on the spot, with the exact disparity of both views.

Pictures below the folder are the textures; without a folder these are made up, too. What is listed here are
the scenes of one series; training draws from others (`draw`), so these may always serve to check a network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.data.source import LARGEST_SEED, Files, Key, Sample, Source, SourceInfo, digest
from pamcli.errors import InputError, UsageError
from pamcli.scenes.hard_cases import CASES, NONE, HardCases

if TYPE_CHECKING:
    from pamcli.scenes.textures import TextureLibrary

LENGTH = 1000  # scenes that are listed
ALL = "hard"  # key: of every hard case
CHECK_SERIES = LARGEST_SEED + 1  # the series of the listed scenes, from which training does not draw


class Scenes(Source):
    """Samples are drawn instead of read. Torch is needed for that, not for listing."""

    endless = True

    def __init__(
        self,
        library: TextureLibrary,
        height: int,
        width: int,
        length: int = LENGTH,
        hard: HardCases | None = None,
    ) -> None:
        """height, width: pixels of the listed scenes; hard: None where nothing was said."""
        # A scene may need any texture. Each is given its share, so that all are named once, and checked once.
        textures = library.photos + library.cutouts
        shares = [textures[index::length] for index in range(length)]
        self.names = tuple(f"{index:06d}" for index in range(length))
        files = []
        for name, share in zip(self.names, shares, strict=True):
            first = share[0] if share else Path(name)
            files.append(Files(name, first, first, {str(i): path for i, path in enumerate(share)}))
        self._files = tuple(files)
        self._library, self._height, self._width, self._hard = library, height, width, hard

    @property
    def files(self) -> tuple[Files, ...]:
        return self._files

    def load(self, index: int) -> Sample:
        """Draw one of the listed scenes: always the same. Raises InputError: a damaged texture."""
        name = self.names[index]
        return replace(self.draw(CHECK_SERIES, int(name), self._height, self._width), name=name)

    def draw(self, series: int, number: int, height: int, width: int) -> Sample:
        """The scene `number` (from 0) of a series (a seed below `CHECK_SERIES`), pictures of any size.

        Pictures are uint8, both disparities known at every pixel and >= 0, `visible` exact. Raises
        InputError: a damaged texture.
        """
        from pamcli.scenes.scene import scene_pair

        pair = scene_pair(self._library, series, number, height, width, self._hard or NONE)
        return Sample(f"{number:06d}", **vars(pair))

    def with_hard_cases(self, hard: HardCases) -> Scenes:
        if self._hard:
            return self
        harder = copy.copy(self)
        harder._hard = hard
        return harder

    def has_truth(self) -> bool:
        return True

    def fingerprint(self) -> str:
        """Digest of the textures' names."""
        return digest([path.name for files in self.files for path in files.parts.values()])

    def first(self, count: int) -> Scenes:
        length = min(count, len(self))
        scenes = Scenes(self._library, self._height, self._width, length, self._hard)
        scenes.spec = self.spec
        return scenes

    checks_itself = True

    def check(self, index: int) -> str | None:
        """What is wrong with a scene's share of the textures. Its truth, made with it, needs no trial."""
        from pamcli.scenes.textures import read_texture

        damaged = []
        for path in self.files[index].parts.values():
            try:
                read_texture(path)
            except InputError as error:
                damaged.append(error.message)
        return "; ".join(damaged) or None


def open_source(root: Path | None, split: str, keys: Mapping[str, str]) -> Scenes:
    from pamcli.scenes.textures import TextureLibrary, find_textures

    width, height = map(int, keys.get("size", "512x256").split("x"))
    shares = {name: _share(name, keys[name]) for name in (ALL, *CASES) if name in keys}
    hard = HardCases(**dict.fromkeys(CASES, shares.pop(ALL, 0.0)) | shares) if shares else None
    return Scenes(TextureLibrary() if root is None else find_textures(root), height, width, hard=hard)


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{name}={text[:40]} is not a share of the scenes, a number from 0 to 1")
    return share


INFO = SourceInfo(
    "procedural",
    "made-up scenes with exact truth; by its name alone, without a folder, of made-up textures",
    ("all",),
    (
        "ANY/NAME.jpg  (photographs, anywhere below the folder: backgrounds and skins)",
        "ANY/NAME.png  (cut-outs, pictures with an opacity channel: objects)",
    ),
    open_source,
    (
        Key("size", "of the pictures", ("512x256", "960x512", "1280x384"), "512x256"),
        Key(ALL, "share of the scenes with each of the following hard cases", (), "0"),
        *(Key(name, f"share with {what}", (), "0") for name, what in CASES.items()),
    ),
    needs_folder=False,
)
