"""Adds the speeds of this machine's caches to measurements that were made here without them.

`python -m kernelcast.measurement.calibrated_folder FOLDER`
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelcast.errors import KernelcastError, MeasurementError
from kernelcast.files import only_process, write_json
from kernelcast.machine import Calibration
from kernelcast.records import CAMPAIGN_FILE, read_campaign


def calibrate_folder(directory: Path) -> Calibration:
    """Measures this machine for the target of a folder of measurements and notes the result in its campaign.

    Nothing else of the folder changes, and it can be gone on with.

    Raises:
        MissingInputError: there are no measurements.
        MeasurementError: another machine measured them, or a campaign is measuring there now.
    """
    from kernelcast.measurement.calibration import calibrate
    from kernelcast.measurement.host import CPU, caches_of, cores_of_machine, cpu_identity

    campaign, _ = read_campaign(directory)
    host = campaign.host
    if host is None or campaign.target["kind"] != "llvm" or host.cpu != cpu_identity():
        raise MeasurementError(
            f"{directory} was measured on {'an unknown machine' if host is None else host.cpu} for the target "
            f"{campaign.target}, and this machine is {cpu_identity()}: its caches are not those; run the command on "
            "the machine that measured"
        )
    taken = MeasurementError(f"a campaign is measuring in {directory}; wait for its end: both would disturb each other")
    with only_process(directory, taken):
        calibration = calibrate(campaign.target, cores_of_machine(), caches_of(CPU))
        described = dataclasses.replace(campaign, host=dataclasses.replace(host, calibration=calibration))
        write_json(directory / CAMPAIGN_FILE, dataclasses.asdict(described))
    return calibration


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="Adds the speeds of this machine's caches to a folder of measurements")
    parser.add_argument("folder", type=Path, help="a folder that `measure` wrote on this machine")
    try:
        calibration = calibrate_folder(parser.parse_args(arguments).folder)
    except KernelcastError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for level in calibration.levels:
        name = "main memory" if level.size_bytes is None else f"{level.size_bytes / 1024:.0f} KiB"
        print(f"{name}: {level.bytes_per_second / 1e9:.1f} GB/s by the target's cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
