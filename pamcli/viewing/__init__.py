"""Render results as self-contained HTML pages for a browser."""
