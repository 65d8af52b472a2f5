"""How are many pairs processed, each from its files to the files of its results?

| to find | open |
| --- | --- |
| which pairs settings name; `Job`, `Result` | `jobs`, for videos `frames` |
| what is done with a pair, step by step; reading, computing and writing overlap | `work` |
| a batch: planned, run here; in several processes; on a cluster | `run`, `processes`, `ray_cluster` |
| `match_files` ..., a command each | `matching`, `upscaling`, `rectification`, `depth` |
| videos as results; colours; less flicker | `video_results`, `colors`, `steadiness` |
| a calibration from images of a board | `calibration` |

What a person likes to know besides goes to the log of the name "pamcli".
"""

import logging

LOG = logging.getLogger("pamcli")
