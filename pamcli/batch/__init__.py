"""Process image pairs, each from its files to the files of its results.

| task | module |
| --- | --- |
| find the pairs that settings name; `Job`, `Result` | `jobs`, for videos `frames` |
| plan a batch; the kinds of results | `plan`, `kinds` |
| read, compute and write one pair | `processing` |
| run a plan here, overlapping these steps, in several processes, or on a cluster | `run`, `ray_cluster` |
| `match_files`, `upscale_files`, ... | `matching`, `upscaling`, `rectification`, `depth` |
| encode depth and point clouds; write videos; colour disparity maps | `metric`, `video_results`, `colors` |
| read the calibration of settings; calibrate from images of a board | `camera_files`, `calibration` |

Notes for the user go to the logger "pamcli".
"""

import logging

LOG = logging.getLogger("pamcli")
