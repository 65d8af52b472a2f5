"""Run networks: image arrays in, result arrays out.

| task | module |
| --- | --- |
| match or upscale a pair of arrays; the result of matching | `matcher`, `upscaler`; `result` |
| load the network that settings name; define what every model offers | `loading`, `model`; `protocol` |
| convert images, and choose the matching resolution | `images` |
| choose device and precision, run programs, with CUDA graphs, and measure memory | `device` |
| cut images that do not fit into memory | `tiles` |
| run foreign networks | `foreign`, `runners` |
| find the description of a foreign network | `describing` |
| export pam's networks to ONNX and run the files | `onnx_file` |
| check an installation | `system_checks`, `gpu_check` |
"""

from collections.abc import Callable

Progress = Callable[[float], None]  # called repeatedly with the completed fraction of some work, up to 1
Report = Progress | None

PAIRS_AT_ONCE = 3  # pairs of a batch in memory: one is read, one computed, one written
