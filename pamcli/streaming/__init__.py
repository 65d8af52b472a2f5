"""The networks for inference: row by row, in bounded memory, with the result of their plain form.

`pasmnet2`, `passrnet2`, `pasmnet` and `passrnet` are the networks, `matching` what both matchers share.
`rolling` holds a few rows of each feature map, and makes batch norm part of the convolutions; `attention`
holds a few epipolar lines of each map, `symmetric_attention` those of PASMnet 2's one cost; `waiting` keeps
rows in 16 bits until they are asked for; `eight_bits` computes convolutions in int8; `footprint` counts what
a strip of rows takes, by which `pamcli.inference.memory` chooses how many there are. What an equation of the
paper says is imported from `pamcli.networks`.

They are written by hand. That `torch.fx` turns a plain graph of convolutions, rectifiers, sums,
concatenations and shuffles into rolling maps by itself was tried on PASSRnet: the walker has 45 lines and
would have taken the place of 30. Features took 1.16 times as long and 1.5 times the memory, the enlargement
3.3 and 8 times, for by hand joints are sums of their parts and layers that follow each other without a
rectifier are one. Nor can the paper's networks have their features whole: of a pair of 3840 x 2160,
PASMnet's take 2.9 GB and PASSRnet's 42.
"""
