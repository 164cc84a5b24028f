"""Neural networks over program graphs."""
