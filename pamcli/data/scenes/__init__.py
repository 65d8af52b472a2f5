"""Procedural scenes: stereo pairs with exact disparity of both views, made up from a seed.

`scene` makes one and photographs it; `rooms` and `streets` (of `street_things`) say what stands where on a
`stage`. `surfaces` and `solids` hold the geometry; `textures`, `shapes` and `looks` what is seen on it;
`render` draws both views.
"""
