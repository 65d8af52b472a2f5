"""Stereo recordings of robots: ROS bags as a source of image pairs, and disparity maps as ROS bags."""
