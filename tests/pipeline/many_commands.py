"""Runs commands one after the other in one process, which loads torch, TVM and MLflow once: for those that end at once.

Reads a list of `[script, argument, ...]` as JSON, and writes `[status, printed]` for each.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import traceback


def run(script: str, arguments: list[str]) -> tuple[int, str]:
    """Exit status and output of one script, as a process of its own would have them."""
    sys.argv = [script, *arguments]
    printed = io.StringIO()
    before = dict(os.environ)
    status = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            runpy.run_path(script, run_name="__main__")
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
    json.dump([run(script, arguments) for script, *arguments in asked], answers)
    answers.close()
