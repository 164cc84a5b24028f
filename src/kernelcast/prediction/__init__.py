"""Predictions of programs that nobody has to run: what a user has, as programs, shown to a trained model."""

from kernelcast.prediction.predictor import Predictor

__all__ = ["Predictor"]
