"""Stages: configuration in, files out; the only place that knows Hydra and MLflow."""
