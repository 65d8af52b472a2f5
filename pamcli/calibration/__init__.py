"""Calibrations in files, rectified pictures, and what leads from pixels to metres: depth and point clouds."""
