"""A Hydra launcher on Ray; the published one wants cloudpickle before version 3, and rents machines besides."""
