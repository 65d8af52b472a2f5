"""Process image pairs, each from its files to the files of its results.

| task | module |
| --- | --- |
| find the pairs that settings name; `Job`, `Result` | `jobs`, for videos `frames` |
| read, compute and write one pair; overlap these steps for many pairs | `processing` |
| plan a batch and run it here, in several processes, or on a cluster | `run`, `ray_cluster` |
| `match_files`, `upscale_files`, ... | `matching`, `upscaling`, `rectification`, `depth` |
| write videos; colour disparity maps | `video_results`, `colors` |
| calibrate from images of a board | `calibration` |

Notes for the user go to the logger "pamcli".
"""

import logging

LOG = logging.getLogger("pamcli")
