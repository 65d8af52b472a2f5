"""pam: stereo matching and stereo super-resolution with parallax attention."""

__version__ = "0.1.0"
