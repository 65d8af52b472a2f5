"""Arrays in, arrays out: how networks are run.

| to find | open |
| --- | --- |
| a matcher, an upscaler | `matcher`, `upscaler` |
| what a stereo model is; networks of pam as one | `model` |
| a model of some weights | `loading` |
| which device and precision, and how a module runs there | `device`, `runtime` |
| the size at which a pair is matched | `match_size` |
| how much memory there is | `memory` |
| images that do not fit: bands and tiles | `tiles` |
| agreement of the disparities of both images | `consistency` |
| networks of others | `foreign`, `runners`, `providers` |
| their description, and which one is right | `describing`, `trial` |
| networks of pam as .onnx files | `onnx_file` |
| checks of an installation | `examination`, `gpu_check` |
"""

from collections.abc import Callable

Progress = Callable[[float], None]
"""Is told the share of some work that is done, ever more, up to 1."""

PAIRS_AT_ONCE = 3
"""Pairs of a batch that are in memory: one being loaded, one computed, one saved."""
