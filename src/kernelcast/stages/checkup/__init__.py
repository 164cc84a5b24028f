"""A checkup of installation, machine and project: what `scripts/doctor.py` looks at."""
