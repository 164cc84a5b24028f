"""kernelcast: learned cost models for tensor programs, measured on the user's own machine."""

__version__ = "0.1.0"
