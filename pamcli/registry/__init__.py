"""Where networks come from: names, files, the Hub; what a weights file says about itself; conversion."""
