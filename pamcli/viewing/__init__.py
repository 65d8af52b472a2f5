"""Pages to look at results in a browser: each one file that loads nothing."""
