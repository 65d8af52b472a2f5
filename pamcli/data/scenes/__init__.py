"""Procedural scenes: stereo pairs with exact disparity of both views, made up from a seed.

`layouts` decides what stands where, `surfaces` holds the geometry, `textures` and `shapes` the looks,
`render` draws both views, `camera` adds what lenses and sensors do.
"""
