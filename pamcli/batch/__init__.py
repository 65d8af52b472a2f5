"""Many pairs of pictures, each from its files to the files of its results.

A `PairName` says which pictures belong together. `plan.py` makes a `Job` of each: where its results go, or
why there are none. An `Operation` is what is done with a pair: `matching.py`, `enlarging.py`,
`rectifying.py`, `metres.py`. A `Batch` (`run.py`) works the jobs off, loading, computing and saving at the
same time (`overlapped.py`), or on other machines (`ray_cluster.py`), and yields an `Outcome` for each.

What a person likes to know besides goes to the log of the name "pamcli".
"""

import logging

LOG = logging.getLogger("pamcli")
