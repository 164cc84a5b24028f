"""Runs commands one after the other in one process, which loads torch, TVM and MLflow once.

Reads a list of `[script, argument, ...]` or `["-m", module, argument, ...]` as JSON, and writes `[status, printed]` for
each; what begins with neither is a program, which runs in a process of its own.
"""

import contextlib
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import traceback


def run(command: list[str]) -> tuple[int, str]:
    """Exit status and output of one command, as a process of its own would have them."""
    if command[0] != "-m" and not command[0].endswith(".py"):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        # it may have written Python
        importlib.invalidate_caches()
        return done.returncode, done.stdout
    sys.argv = command[1:] if command[0] == "-m" else command
    printed = io.StringIO()
    before = dict(os.environ)
    status = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            if command[0] == "-m":
                runpy.run_module(command[1], run_name="__main__")
            else:
                runpy.run_path(command[0], run_name="__main__")
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            if isinstance(ended.code, str):
                print(ended.code)
        except BaseException:
            traceback.print_exc()
            status = 1
    os.environ.clear()
    os.environ.update(before)
    return status, printed.getvalue()


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    # what libraries write to the real output goes elsewhere
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump([run(command) for command in asked], answers)
    answers.close()
