"""What the page of a run says about it, in Markdown: what it is and how to have it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelcast.stages.tracking.origin import COMMIT_TAG, DIRTY_TAG, SOURCE_TAG

NOTE_TAG = "mlflow.note.content"

ABOUT = {
    "measure": "Programs built, checked and timed on this machine.",
    "graphs": "Measured programs turned into what models see of them, with labels and splits.",
    "train": "One cost model, fitted on one split.",
    "sweep": "Many trainings; each is a run below this one, and the best one is named in the parameters.",
    "evaluate": "The same metrics for every trained model.",
    "experiment": "One table of the results; its trainings are runs below this one.",
    "tune": "A search for fast programs.",
    "compare": "What several tunings found, side by side.",
    "report": "The page about measurements and models.",
    "register": "A model as a version in the registry.",
    "import": "Foreign measurements brought in.",
    "repeat": "A run repeated.",
}
"""By stage."""


def note_of(tags: Mapping[str, str], run_id: str, lines: Sequence[str] = ()) -> str:
    """The note of a run.

    Args:
        tags: what the run says about where it comes from.
        run_id: by which it is found.
        lines: what else there is to say.
    """
    revision = tags.get(COMMIT_TAG, "unknown")[:12]
    changed = ", and changes to it: `source.diff` among the artifacts" if tags.get(DIRTY_TAG) == "true" else ""
    stage = tags.get("kernelcast.stage", "")
    # the page folds all but the first lines: what one comes for stands there
    repeat = "" if stage == "sweep" else f"python scripts/repeat.py run={run_id}  # the same again\n"
    facts = "".join(
        f"- {line}\n"
        for line in (
            *lines,
            f"code: git revision `{revision}`{changed}; source hash `{tags.get(SOURCE_TAG, 'unknown')}`",
            "all settings: `config.yaml`; all versions: `environment.json`",
        )
    )
    begun = f"{tags.get('kernelcast.command', '')}  # what began this run\n"
    return f"**{ABOUT.get(stage, stage)}**\n\n```bash\n{repeat}{begun}```\n\n{facts}"
