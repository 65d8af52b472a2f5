"""Metrics as the benchmarks define them, and what is made of them: tables, reports, submissions."""
