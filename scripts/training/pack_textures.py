"""Pack photographs and cut-outs of a directory into one zip file of limited size.

    python scripts/training/pack_textures.py FOLDER ZIP MEGABYTES

Files stay as they are if they fit; otherwise they become WebP, downscaled until they fit.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

from PIL import Image

SIDES = (1024, 768, 640, 512, 448, 384, 320)
QUALITY = 80


def main() -> None:
    """Pack the files, and print how."""
    folder, archive, megabytes = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in Image.registered_extensions())
    most = megabytes * 1e6 - 200 * len(files)  # what a zip says of each file
    packed, how = {path: path.read_bytes() for path in files}, "as they are"
    for side in SIDES:
        if sum(map(len, packed.values())) <= most:
            break
        packed, how = {path: reduced(path, side) for path in files}, f"at most {side} px"
    else:
        if sum(map(len, packed.values())) > most:
            sys.exit(f"{folder} does not fit into {megabytes:g} MB")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as target:
        for path, content in packed.items():
            suffix = path.suffix if how == "as they are" else ".webp"
            target.writestr(f"{path.relative_to(folder).with_suffix('')}{suffix}", content)
    print(f"{len(files)} textures, {how}: {archive.stat().st_size / 1e6:.1f} MB")


def reduced(path: Path, side: int) -> bytes:
    """Return an image as WebP with a longer side of at most `side` px."""
    with Image.open(path) as picture:
        small = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=QUALITY)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
