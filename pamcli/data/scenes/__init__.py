"""Procedural scenes: stereo pairs with exact disparity of both views, made up from a seed.

`scene` decides what stands where, with the tools of `stage`; `streets` are made of `street_things`.
`surfaces` and `solids` hold the geometry; `textures`, `shapes` and `looks` what is seen on it. `render` draws
both views with what `sampling` reads from textures, and `camera` adds what lenses and sensors do.
"""
