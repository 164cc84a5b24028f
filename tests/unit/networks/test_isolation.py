"""Extraction in a process of its own: the same answer each time, every error one message, none left behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.networks import catalogue, own
from kernelcast.networks.extract import workloads_of
from kernelcast.networks.isolation import extract_workloads
from kernelcast.networks.requests import Request


def function_of(tmp_path: Path, text: str) -> Request:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return own.own_function("mine", str(path), "f")


def test_errors_come_back_as_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^workload\.mine: .*mine\.py:2: f raised ValueError: no$"):
        extract_workloads([function_of(tmp_path, "def f():\n    raise ValueError('no')\n")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import os\ndef f():\n    print('bye', flush=True)\n    os._exit(7)\n",
            "ended with status 7.*last words: bye",
        ),
        ("import os\ndef f():\n    os.kill(os.getpid(), 9)\n", "was killed by SIGKILL; is there enough memory?"),
    ],
)
def test_a_crash_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        extract_workloads([function_of(tmp_path, text)])


def test_no_requests_need_no_process() -> None:
    assert extract_workloads([]) == []


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    hanging = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n"
    request = function_of(tmp_path, hanging)
    code = (
        "from kernelcast.networks.isolation import extract_workloads\n"
        "from kernelcast.networks.requests import Request\n"
        f"extract_workloads([{request!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    while not (started.exists() and started.read_text()):
        assert parent.poll() is None
        time.sleep(0.05)
    child = psutil.Process(int(started.read_text()))
    parent.kill()
    parent.wait()
    child.wait(timeout=60)


def test_the_measuring_process_loads_no_torch_and_every_process_finds_the_same() -> None:
    code = (
        "import json, sys\n"
        "from omegaconf import OmegaConf\n"
        "from kernelcast.stages.workloads import make_workloads\n"
        "target = 'kernelcast.networks.catalogue.dqn'\n"
        "workloads = make_workloads(OmegaConf.create({'dqn': {'_target_': target}}))\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "print(json.dumps([[workload.key, workload.name, workload.networks] for workload in workloads]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here, _ = workloads_of(catalogue.dqn("dqn"))
    assert json.loads(done.stdout) == [[workload.key, workload.name, workload.networks] for workload in here]
