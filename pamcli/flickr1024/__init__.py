"""Make training patches for super-resolution from published pairs or from stereograms.

A stereogram is one image that contains both views of a scene side by side, for crossed or parallel eyes.

| topic | module |
| --- | --- |
| the pairs in folders and archives | `pairs.py` |
| a store of patches on disk: files, index, pixels | `stores.py` |
| from pairs to a store | `prepare.py` |
| resuming interrupted work | `resumable.py` |
| from a folder of stereograms to pairs | `stereogram_pairs.py` |
| the two views of a stereogram, rectified | `rectify_stereogram.py` |
| the left one of two views | `imaging/dense_matching.py` |
"""
