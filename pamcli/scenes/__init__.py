"""Procedural scenes: stereo pairs with exact disparity of both views, made up from a seed.

`scene` makes one and photographs it; `rooms` and `streets` say what stands where on a `stage`. `surfaces` and
`solids` hold the geometry; `textures` and `looks` what is seen on it; `render` draws both views.
`inserts` makes things that are put in front of real pictures.
"""
