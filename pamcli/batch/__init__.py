"""Process image pairs, each from its files to the files of its results.

| task | module |
| --- | --- |
| find the pairs that settings name, and plan their results; `Job`, `Result` | `plan`, for videos `frames` |
| the kinds of results | `kinds` |
| read, compute and write one pair | `processing` |
| run a plan here, overlapping these steps, in several processes, or on a cluster | `run`, `ray_cluster` |
| `match_files`, `upscale_files`, ... | `matching`, `upscaling`, `rectification`, `depth` |
| encode depth and point clouds; colour disparity maps | `metric`, `colors` |
| plan and write videos | `video_names`, `video_results` |
| read the calibration of settings; calibrate from images of a board | `camera_files`, `calibration` |

Notes for the user go to the logger "pamcli".
"""

import logging

LOG = logging.getLogger("pamcli")
