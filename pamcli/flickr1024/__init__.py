"""Training patches for super-resolution: from published pairs, zipped or not, or from stereograms.

A stereogram is one picture that holds both views of a scene side by side, for crossed or parallel eyes.

| to find | open |
| --- | --- |
| pictures in folders and archives | `archives.py` |
| which two of them are a pair | `pairs.py` |
| a store of patches on disk: its files, its index, its pixels | `stores.py` |
| from pairs to a store | `prepare.py` |
| work that goes on where it was interrupted | `unfinished.py` |
| from a folder of stereograms to pairs | `stereogram_pairs.py` |
| one stereogram, step by step | `rectify_stereogram.py` |
| where its two views are, and which is the left one | `stereogram_views.py`, `imaging/view_order.py` |
"""
