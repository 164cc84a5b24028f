import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelcast.models.resuming import CHECKPOINT_FILE, STATE, find_resume_point, identity_of

# a process that trains until its log kills it, as the machine would
TRAIN_UNTIL_KILLED = """
import importlib.util
import os
import signal
import sys
from pathlib import Path

import numpy as np

spec = importlib.util.spec_from_file_location("made_up", sys.argv[1])
made_up = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made_up)


class KillingLog:
    def metrics(self, values, step):
        if step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)


programs = made_up.make_programs()
rows = np.arange(len(programs))
model = made_up.make_model("gcn", max_epochs=6)
model.fit(programs.select(rows[::2]), programs.select(rows[1::2]), KillingLog(), Path(sys.argv[2]))
"""


@pytest.fixture
def halves(programs):
    rows = np.arange(len(programs))
    return programs.select(rows[::2]), programs.select(rows[1::2])


@pytest.fixture
def quick(model_of):
    return lambda **trainer: model_of("gcn", **{"max_epochs": 6, **trainer})


class Rows:
    def __init__(self):
        self.rows = []

    def metrics(self, values, step):
        self.rows.append((step, dict(values)))


class StopAt(Rows):
    """Ends a training as a lost terminal would, in the middle of an epoch's end."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def metrics(self, values, step):
        super().metrics(values, step)
        if step == self.epoch:
            raise ConnectionResetError


def test_a_killed_training_goes_on_as_if_nothing_had_been(quick, halves, tmp_path):
    undisturbed, whole = quick(), Rows()
    undisturbed.fit(*halves, whole)
    conftest = Path(__file__).with_name("conftest.py")
    command = [sys.executable, "-c", TRAIN_UNTIL_KILLED, str(conftest), str(tmp_path), "3"]
    killed = subprocess.run(command, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL
    # epoch 3 was not kept: it was still ending
    state = torch.load(tmp_path / CHECKPOINT_FILE, weights_only=True)
    assert len(state[STATE]["history"]) == 3
    resumed, log = quick(), Rows()
    resumed.fit(*halves, log, tmp_path)
    assert log.rows == whole.rows
    np.testing.assert_array_equal(resumed.predict(halves[1]), undisturbed.predict(halves[1]))


@pytest.mark.parametrize("settings", [{"average_decay": 0.0}, {"patience": 1, "learning_rate": 0.3, "max_epochs": 12}])
def test_every_epoch_is_a_place_to_go_on_from(quick, halves, tmp_path, settings):
    undisturbed, whole = quick(**settings), Rows()
    undisturbed.fit(*halves, whole)
    for epoch in (1, 2):
        with pytest.raises(ConnectionResetError):
            quick(**settings).fit(*halves, StopAt(epoch), tmp_path)
    # also from the very end, by early stop or by the last epoch
    for _ in range(2):
        resumed, log = quick(**settings), Rows()
        resumed.fit(*halves, log, tmp_path)
        assert log.rows == whole.rows
        np.testing.assert_array_equal(resumed.predict(halves[1]), undisturbed.predict(halves[1]))


@pytest.mark.parametrize("trouble", ["torn", "empty", "text", "foreign", "without our state"])
def test_a_checkpoint_of_no_use_is_told_in_one_line(quick, halves, tmp_path, caplog, trouble):
    path = tmp_path / CHECKPOINT_FILE
    with pytest.raises(ConnectionResetError):
        quick().fit(*halves, StopAt(1), tmp_path)
    whole = path.read_bytes()
    if trouble == "foreign":
        model = quick(learning_rate=0.001)
    else:
        model = quick()
        contents = {"torn": whole[: len(whole) // 2], "empty": b"", "text": b"no checkpoint"}
        if trouble == "without our state":
            torch.save({"epoch": 3}, path)
        else:
            path.write_bytes(contents[trouble])
    log = Rows()
    model.fit(*halves, log, tmp_path)
    assert [step for step, _ in log.rows] == list(range(6))
    told = [record for record in caplog.records if record.levelname == "WARNING" and str(path) in record.message]
    assert len(told) == 1
    assert "begins anew" in told[0].message


def test_a_checkpoint_that_would_run_code_is_not_loaded(tmp_path):
    path, trap = tmp_path / CHECKPOINT_FILE, tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    torch.save({STATE: Trap()}, path)
    assert find_resume_point(tmp_path, "identity") is None
    assert not trap.exists()


def test_leftovers_of_a_killed_writer_are_removed(quick, halves, tmp_path):
    with pytest.raises(ConnectionResetError):
        quick().fit(*halves, StopAt(1), tmp_path)
    (tmp_path / f".{CHECKPOINT_FILE}.left").write_bytes(b"half")
    quick().fit(*halves, Rows(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT_FILE]


def test_identity_tells_settings_and_data_apart(halves, programs):
    first, second = halves
    identities = [
        identity_of({"seed": 0}, first, second),
        identity_of({"seed": 1}, first, second),
        identity_of({"seed": 0}, second, first),
        identity_of({"seed": 0}, first, programs),
    ]
    assert len(set(identities)) == 4
    assert identities[0] == identity_of({"seed": 0}, first, second)
