"""Find and load networks: names, files and the Hub, weights file headers, and conversion."""
