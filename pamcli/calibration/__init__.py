"""Read and make calibrations, rectify images, and convert disparity to depth maps and point clouds."""
