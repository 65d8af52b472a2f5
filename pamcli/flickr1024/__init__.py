"""Make training patches for super-resolution from published pairs or from stereograms.

A stereogram is one image that contains both views of a scene side by side, for crossed or parallel eyes.

| topic | module |
| --- | --- |
| images in folders and archives | `archives.py` |
| finding the two images of a pair | `pairs.py` |
| a store of patches on disk: files, index, pixels | `stores.py` |
| from pairs to a store | `prepare.py` |
| resuming interrupted work | `resumable.py` |
| from a folder of stereograms to pairs | `stereogram_pairs.py` |
| rectifying one stereogram | `rectify_stereogram.py` |
| finding its two views, and which is the left one | `stereogram_views.py`, `imaging/left_right_order.py` |
"""
