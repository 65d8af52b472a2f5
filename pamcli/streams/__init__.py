"""From cameras and streams to results: newest frame first, nothing queued."""
