"""What a gate lets pass: the config's limits, the machine the job will run on, the baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dlcheck import baseline, streams
from dlcheck.config import Config, UserError
from dlcheck.explain import all_rules
from dlcheck.findings import Report
from dlcheck.observation import Observation

# They judge the machine, and CI's is another one than the job's.
OF_MACHINE = frozenset({
    "DLC410", "DLC502", "DLC503", "DLC508", "DLC513", "DLC601", "DLC604", "DLC605",
})  # fmt: skip
# What a job brings along wherever it runs.
OF_JOB = ("handles",)
NO_MACHINE = "judges the machine, and the config has no `machine:`"


def left_out(loaded: Config) -> dict[str, str]:
    """Name the rules that do not judge here, each with the reason."""
    if loaded.settings.get("machine"):
        return {}
    return {one.slug: NO_MACHINE for one in all_rules() if one.code in OF_MACHINE}


def baseline_file(options: Mapping[str, Any], loaded: Config) -> Path | None:
    """Return the file of accepted findings: the option's, else the config's, beside the config.

    Raises:
        UserError: it is to be updated, and nothing names it.
    """
    said = (loaded.settings.get("gate") or {}).get("baseline")
    if options["baseline"]:
        return Path(options["baseline"])
    if said:
        return Path(loaded.folder, said)
    if options["update_baseline"]:
        hint = (
            "--baseline FILE names it, or `gate: {baseline: dlcheck-baseline.json}` in the config"
        )
        raise UserError("there is no baseline to update", hint)
    return None


class Gate:
    """One run of a gate. Made before anything runs, so that a bad baseline costs no run.

    `given` are the options that the command line names; the others yield to the config's `gate:`.
    """

    def __init__(
        self, options: Mapping[str, Any], loaded: Config, given: Collection[str] = ()
    ) -> None:
        said = loaded.settings.get("gate") or {}
        self.options = dict(options)
        for name in ("fail_on", "fail_on_incomplete"):
            if name not in given and name in said:
                self.options[name] = said[name]
        epochs = (said.get("leak") or {}).get("epochs")
        if epochs and "epochs" not in given:
            self.options["epochs"] = epochs
        if said.get("speed"):
            streams.complain("gate.speed is not judged: no command measures it yet")
        self.left_out = left_out(loaded)
        self.folder = loaded.folder
        self.path = baseline_file(options, loaded)
        self.update = bool(options["update_baseline"])
        self.entries: list[baseline.Entry] = []
        if self.path and (self.path.exists() or not self.update):
            self.entries = baseline.read(self.path)

    @staticmethod
    def elsewhere(seen: Observation) -> Observation:
        """Forget the room that this machine has: the job runs on the one that `machine:` says."""
        here = seen.settings.get("limits") or {}
        kept = {name: here[name] for name in OF_JOB if name in here}
        return dataclasses.replace(seen, settings={**seen.settings, "limits": kept})

    def accepted(self, report: Report) -> Report:
        """Take what is accepted out of a report; with --update-baseline all of it is, from now on.

        A run that was cut short updates nothing.
        """
        if self.path is None:
            return report
        if self.update and not report.observation.cut:
            found = baseline.entries(report, self.folder, self.entries)
            baseline.write(self.path, found)
            streams.complain(f"{self.path}: {len(found)} accepted, {len(self.entries)} before")
            self.entries = found
        elif self.update:
            streams.complain(f"{self.path} is not updated: {report.observation.cut}")
        return baseline.without_known(report, self.entries, self.folder, self.path.name)
