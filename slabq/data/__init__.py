"""Data files of slabq: kernel profiles, machine presets, published tables, traces."""
