"""From the command line to a stage and back: composed configuration in, one message and an exit status out."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kernelcast.errors import ConfigError, KernelcastError, StorageError
from kernelcast.files import storage_errors
from kernelcast.stages.announcing import PRINT_VARIABLE, announce
from kernelcast.stages.mistyped import check_keys, configuration_message, group_message, known_keys

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM, as shells have it."""

QUIET = "--quiet"
"""Flag of every script: nothing is said of the configuration at the start."""

MULTIRUN = ("-m", "--multirun")
"""Hydra's flag of a sweep, wherever it stands."""

LARGEST_SEED = 2**31 - 1
"""NumPy, torch, XGBoost, Optuna and TVM all take seeds from 0 to here."""


def launch(main: Callable[[], Any], flags: Mapping[str, str] | None = None) -> None:
    """Runs a script's Hydra entry point; what is wrong with its configuration becomes one message with the next step.

    Hydra's own way of reporting names neither the script nor its `--help`, and advises to add a mistyped key with `+`.

    Args:
        main: the entry point.
        flags: command-line flags and the overrides that they stand for.
    """
    open_closed_streams()
    call_by_own_name()
    answer_questions(flags or {})
    typed = [(flags or {}).get(argument, argument) for argument in sys.argv[1:] if argument != QUIET]
    # argparse takes no KEY=VALUE behind a flag that stands behind another KEY=VALUE
    typed.sort(key=lambda argument: argument not in MULTIRUN)
    sys.argv[1:] = [with_own_key(argument, Path(sys.argv[0]).stem) for argument in typed]
    # with it Hydra raises its errors instead of printing them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        # Hydra makes this run's folder before it calls the stage
        with storage_errors(Path.cwd()):
            main()
    except StorageError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KernelcastError as error:
        # of a job of a multirun; its own log has said it already
        sys.exit(error.exit_code)
    except (HydraException, OmegaConfBaseException) as error:
        print(configuration_message(error), file=sys.stderr)
        sys.exit(1)
    except ValueError as error:
        if not str(error).startswith("Config group override"):
            raise
        print(group_message(), file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        silence_output()
    except KeyboardInterrupt:
        # before the stage began, which says more
        print("interrupted; nothing was begun", file=sys.stderr)
        sys.exit(INTERRUPTED)


def open_closed_streams() -> None:
    """Has what a caller closed (`>&-`, some schedulers) lead nowhere: else the next file opened would be the output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r+"))  # noqa: SIM115 for the whole process


def call_by_own_name() -> None:
    """Begins again by the script itself where it was called by a link to it: Hydra finds conf/ from where it stands."""
    script = Path(sys.argv[0])
    if script.is_symlink():
        called = [str(script.resolve()) if word == sys.argv[0] else word for word in sys.orig_argv[1:]]
        os.execv(sys.executable, [sys.executable, *called])


def with_own_key(argument: str, root: str) -> str:
    """The argument with the key that `root` has for it: `model=gcn` is `model_name=gcn` where a model has only a name.

    Hydra takes `model=...` for the choice of a file wherever there is a folder conf/model.
    """
    name, equals, value = argument.partition("=")
    known = set(known_keys(root))
    return f"{name}_name={value}" if equals and name not in known and f"{name}_name" in known else argument


def answer_questions(flags: Mapping[str, str]) -> None:
    """Ends the process where the command line asks for `--help` or `--version`; notes `--quiet` in the environment."""
    asked = sys.argv[1:]
    script = Path(sys.argv[0])
    if {"--help", "-h"} & set(asked):
        from kernelcast.stages.help import help_page

        try:
            print(help_page(script.resolve().parents[1] / "conf", script.stem, asked, flags))
        except ConfigError as error:
            sys.exit(f"configuration of {script}: {error}")
        except BrokenPipeError:
            silence_output()
        sys.exit()
    if "--version" in asked:
        from kernelcast.stages.help import version_lines

        print(*version_lines(), sep="\n")
        sys.exit()
    if QUIET in asked:
        os.environ[PRINT_VARIABLE] = "false"


def silence_output() -> None:
    """Whoever read the output, `head` for one, has enough of it; Python would complain once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_stage(stage: Callable[[DictConfig], Result], config: DictConfig) -> Result:
    """Runs `stage`; an error that kernelcast explains becomes one message and its exit status, without a traceback.

    In a multirun the error goes on to Hydra, so that the other jobs still run.
    """
    try:
        OmegaConf.resolve(config)
        check_keys(config, HydraConfig.get().job.name)
        check_root(config)
        check_seed(config)
        announce(config)
        with storage_errors(Path(config.paths.root)):
            return stage(config)
    except KernelcastError as error:
        logger.error("%s", error)
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        sys.exit(error.exit_code)
    except MemoryError:
        logger.error(
            "the memory ran out; what was finished is kept: give this process more, or let it do less at once (fewer "
            "processes, programs or samples)"
        )
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        sys.exit(1)
    except KeyboardInterrupt:
        logger.error("interrupted; what was finished is kept, the same command does the rest")
        sys.exit(INTERRUPTED)


def check_root(config: DictConfig) -> None:
    """Makes sure that an unset shell variable does not turn `paths.root=$FOLDER` into the root of the file system.

    Raises:
        ConfigError: `paths.root` is empty.
    """
    if not config.paths.root.strip():
        raise ConfigError("paths.root is empty; name a folder, or leave it out to use the checkout")


def check_seed(config: DictConfig) -> None:
    """Makes sure, before any work, that every library can take the seed.

    Raises:
        ConfigError: it cannot.
    """
    seed = OmegaConf.select(config, "seed", default=0)
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"seed={seed}: it must be a whole number from 0 to {LARGEST_SEED}")
