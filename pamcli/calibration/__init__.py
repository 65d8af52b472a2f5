"""From pixels to metres: calibrations in files, rectified pictures, depth and point clouds."""
