"""The networks for inference: row by row, in bounded memory, with the result of their plain form.

`rolling` holds a few rows of each feature map, `attention` a few epipolar lines of each map, `folding` makes
batch norm part of the convolutions; `pasmnet` and `passrnet` are the networks, `confidence` says how sure a
disparity is. What an equation of the paper says is imported from `pamcli.networks`.
"""
