"""Render procedural scenes: stereo pairs with exact disparity of both views, generated from a seed.

`scene` generates one and simulates the cameras; `rooms` and `streets` place objects on a `stage`. `surfaces`
and `solids` hold the geometry, `textures` and `looks` the appearance; `render` renders both views. `inserts`
generates occluders for real images.
"""
