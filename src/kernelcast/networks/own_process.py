"""Work in a process of its own: torch breaks forks and costs memory, and what users wrote or TVM compiled may crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

from kernelcast.errors import MeasurementError


def run_apart(
    module: str,
    arguments: Sequence[str],
    doing: str,
    step: str,
    timeout_seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs `python -m MODULE ARGUMENTS` and waits for its end.

    Args:
        module: calls `end_with_parent` first.
        arguments: of the command.
        doing: what the process does, for the error: `extracts the kernels of resnet18`.
        step: what the user can try after a crash.
        timeout_seconds: its limit; None for none.
        environment: variables for it alone.

    Raises:
        MeasurementError: it ended in another way than well; the message holds its last words.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # `transformers` would look for newer files of models that are made here
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
            | dict(environment or {}),
        )
        try:
            code: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None, "a pipe was asked for"
            process.stdin.close()
        log.seek(0)
        said = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    if code is None:
        raise MeasurementError(
            f"the process that {doing} was not ready after {timeout_seconds:g} s and was ended; {step}"
        )
    if code != 0:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        step = "is there enough memory?" if code == -signal.SIGKILL else step
        raise MeasurementError(f"the process that {doing} {how}; {step} Its last words: {said[-1] if said else 'none'}")


def end_with_parent() -> None:
    """Has this process end when whoever started it by `run_apart` is gone."""
    threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    # the other end of this pipe closes with the process that holds it
    # (not by `sys.stdin`, whose lock would be held at the end)
    os.read(0, 1)
    os._exit(1)
