"""The networks for inference: row by row, in bounded memory, with the result of their plain form.

`rolling` holds a few rows of each feature map, and makes batch norm part of the convolutions; `attention`
holds a few epipolar lines of each map; `pasmnet` and `passrnet` are the networks. What an equation of the
paper says is imported from `pamcli.networks`.
"""
