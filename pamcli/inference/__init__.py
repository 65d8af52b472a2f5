"""Arrays in, arrays out: the networks as a program uses them.

| to find | open |
| --- | --- |
| a matcher, an upscaler | `matcher`, `upscaler` |
| a network of some weights, on a device in some precision | `loading`, `device` |
| what size a pair is matched in | `match_size` |
| how many rows are computed at a time, what fits | `memory` |
| what both views say about each other | `consistency` |
| a network by others: fed, cut into tiles, run | `foreign`, `tiling`, `runners`, `providers` |
| its description, and which one is right | `describing`, `trial` |
| a network of ours as an .onnx file | `onnx_file` |
| a variant, which has no streamed form | `whole` |
| whether all of this works here | `examination`, `gpu_check` |
"""

PAIRS_AT_ONCE = 3
"""Pairs of a batch that are in memory: one being loaded, one computed, one saved."""
