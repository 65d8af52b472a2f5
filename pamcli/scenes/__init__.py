"""Render procedural scenes: stereo pairs with exact disparity of both views, generated from a seed.

`scene` generates one and simulates the cameras; `streets` and `interiors` place objects on a `stage`.
`surfaces` and `solids` hold the geometry, `textures` and `appearance` the looks; `render` renders both views.
`thin_objects` also generates occluders for real images.
"""
