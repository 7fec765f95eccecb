"""The command line: options and exit statuses. What they mean is decided elsewhere."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlcheck import streams
from dlcheck.options import common, verbose

if TYPE_CHECKING:
    from dlcheck.config import Config
    from dlcheck.findings import Report, Severity
    from dlcheck.observation import Observation
    from dlcheck.session import Job

OK, FOUND, USAGE, OURS, INTERRUPTED = 0, 1, 2, 3, 128 + signal.SIGINT
FILE_WIDTH = 100


@dataclass(frozen=True)
class Choice:
    """Which rules run and how severe they are, by slug; `reasons` are the config's ignores."""

    select: set[str]
    ignore: set[str]
    reasons: dict[str, str]
    severities: dict[str, Severity]


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from dlcheck import __version__

        click.echo(f"dlcheck {__version__}")
        ctx.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Check a PyTorch input pipeline before, and while, it feeds a model.

    dlcheck runs your own Dataset, transforms, collate and DataLoader, watches what happens, and
    says what would crash or train wrong in silence: the field, the sample, the line, the cure.

    \b
    Start here:
      dlcheck demo                              see it work on a small sample
      dlcheck shapes                            check ./dlcheck.yaml
      dlcheck shapes cats.data:make_loader      check what a function returns
      dlcheck explain ragged-batch              what a rule means, with an example

    \b
    Exit status: 0 nothing at or above --fail-on, 1 findings, 2 usage or config,
    3 dlcheck itself failed, 130 Ctrl-C.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
    return USAGE


@cli.command(short_help="Check shapes, dtypes, ranges, structure, collate.")
@click.argument("arguments", nargs=-1, metavar="[TARGET] [KEY=VALUE...]")
@common
def shapes(arguments: tuple[str, ...], **options: Any) -> int:
    """Check shapes, dtypes, ranges, structure and collate of a pipeline.

    TARGET is a dlcheck.yaml, a folder that holds one (default: this one), or
    package.module:attribute or file.py:attribute, which names a DataLoader, a Dataset, or a
    function that returns one. KEY=VALUE overrides a value of the config.

    \b
    Examples:
      dlcheck shapes
      dlcheck shapes configs/cats.yaml loader.batch_size=8 --split train
      dlcheck shapes cats/data.py:make_loader --samples all
      dlcheck shapes --python .venv/bin/python --format json > report.json
    """
    return _run("shapes", arguments, options)


@cli.command(short_help="Run `shapes` on the sample that comes along.")
@common
def demo(**options: Any) -> int:
    """Run `shapes` on the sample that comes with dlcheck.

    It is copied to a temporary folder, which is removed afterwards.

    \b
    Examples:
      dlcheck demo
      dlcheck demo --python .venv/bin/python
    """
    from dlcheck import demo as sample

    folder = sample.sample_folder()
    with sample.copied(folder) as name:
        click.echo(f"$ dlcheck shapes {name}\n", err=True)
        status = _run("shapes", (name,), options)
    click.echo(
        f"\nThe sample lies in {folder}\n"
        f"Look at its dlcheck.yaml, or try your own changes:\n"
        f"  cp -r {folder} . && dlcheck shapes {folder.name}",
        err=True,
    )
    return status


@cli.command(short_help="Say what a rule means, with an example.")
@click.argument("rule", metavar="RULE|CODE")
@verbose
def explain(rule: str, **_options: Any) -> int:
    """Say why a rule exists, what cures it, and show a bad and a good example.

    \b
    Examples:
      dlcheck explain ragged-batch
      dlcheck explain DLC101
    """
    from dlcheck import explain as rules

    streams.write(rules.explain(rules.named(rule)))
    return OK


@cli.command(short_help="List the rules.")
@click.option("--markdown", is_flag=True, help="Write the page of all rules.")
@verbose
def rules(markdown: bool, **_options: Any) -> int:
    """List the rules: code, name, severity, title.

    \b
    Examples:
      dlcheck rules
      dlcheck rules --markdown > rules.md
    """
    from dlcheck import explain

    streams.write(explain.markdown() if markdown else explain.table(width=streams.width()))
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    streams.claim_streams()
    state: dict[str, Any] = {"verbose": False}
    args = None if arguments is None else list(arguments)
    try:
        status = cli.main(args, prog_name="dlcheck", standalone_mode=False, obj=state)
        return streams.flushed(status if isinstance(status, int) else OK)
    except (click.Abort, KeyboardInterrupt):
        streams.complain("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return USAGE
    except BrokenPipeError:
        streams.abandon_stdout()
        return OK
    except Exception as error:  # noqa: BLE001 - the last place that can say what broke
        return _failed(error, verbose=bool(state["verbose"]))


def _failed(error: Exception, *, verbose: bool) -> int:
    from dlcheck.config import UserError

    if isinstance(error, UserError):
        hint = getattr(error, "hint", "")
        streams.complain(str(getattr(error, "message", error)) + (f"\n{hint}" if hint else ""))
        return USAGE
    message = f"dlcheck itself failed: {type(error).__name__}: {error}"
    streams.complain(message if verbose else message + "\nrun again with -v for the traceback")
    if verbose:
        streams.complain("".join(traceback.format_exception(error)).rstrip())
    return OURS


def _run(command: str, arguments: Sequence[str], options: dict[str, Any]) -> int:
    from dlcheck import config, session

    target, overrides = _split_arguments(arguments)
    outputs = _outputs(options)
    loaded = config.load(target, overrides)
    choice = _choice(loaded, options)
    outcome = session.run(_job(command, loaded, options))
    report = _judged(command, loaded, outcome.observation, choice, options["fail_on"])
    for format_, file in outputs:
        _write(file, _rendered(report, format_, width=FILE_WIDTH))
    _show(report, options)
    if options["images"]:
        _say_of_pictures(outcome.observation, options["images"])
    if outcome.signal is not None:
        return 128 + outcome.signal
    incomplete = report.verdict == "incomplete" and options["fail_on_incomplete"]
    return FOUND if report.verdict == "fail" or incomplete else OK


def _split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Tell TARGET from KEY=VALUE: the first without `=`, or that exists as a path."""
    first = arguments[0] if arguments else None
    if first is not None and ("=" not in first or os.path.exists(first)):  # noqa: PTH110 - may hold NUL
        target, overrides = first, list(arguments[1:])
    else:
        target, overrides = None, list(arguments)
    stray = next((word for word in overrides if "=" not in word), None)
    if stray is not None:
        message = f"{stray!r} is no KEY=VALUE; TARGET comes first, and there is one."
        raise click.UsageError(message)
    return target, overrides


def _job(command: str, loaded: Config, options: dict[str, Any]) -> Job:
    from dlcheck.session import Job

    return Job(
        command=command,
        config=loaded,
        python=options["python"] or sys.executable,
        budget=options["budget"],
        samples=options["samples"],
        seed=options["seed"],
        hang_after=options["hang_after"],
        split=options["split"],
        quiet=options["quiet"],
        images=str(options["images"]) if options["images"] else None,
    )


def _choice(loaded: Config, options: dict[str, Any]) -> Choice:
    """Join what the options and the config say of rules; a wrong name is found before the run."""
    from dlcheck.explain import all_rules, named
    from dlcheck.findings import Severity

    all_rules()
    rules = loaded.settings.get("rules") or {}
    return Choice(
        select=_rule_names(options["select"]),
        ignore=_rule_names(options["ignore"]),
        reasons={named(name).slug: str(why) for name, why in (rules.get("ignore") or {}).items()},
        severities={
            named(name).slug: Severity[level.upper()]
            for name, level in (rules.get("severity") or {}).items()
        },
    )


def _judged(command: str, loaded: Config, seen: Observation, choice: Choice, limit: str) -> Report:
    from dlcheck.findings import Report, Severity, judge, verdict

    findings, states = judge(
        seen,
        select=choice.select,
        ignore=choice.ignore | set(choice.reasons),
        severities=choice.severities,
    )
    states = tuple(
        dataclasses.replace(state, reason=f"ignored: {choice.reasons[state.rule]}")
        if state.rule in choice.reasons
        else state
        for state in states
    )
    fail_on = None if limit == "never" else Severity[limit.upper()]
    result = verdict(findings, states, fail_on)
    return Report(command, loaded.target, result, findings, states, seen, fail_on=fail_on)


def _rule_names(values: Any) -> set[str]:
    """Read names of rules, separated by commas or repeated, as slugs."""
    from dlcheck.explain import named

    words = [word.strip() for value in values for word in value.split(",")]
    return {named(word).slug for word in words if word}


def _outputs(options: dict[str, Any]) -> list[tuple[str, Path]]:
    """Join --output and --save, and find out now whether each file can be written."""
    outputs = [*options["output"], *([("json", options["save"])] if options["save"] else [])]
    for _format, file in outputs:
        _check_writable(file)
    return outputs


def _check_writable(file: Path) -> None:
    """Raise UserError for a file that cannot be written; a run may take minutes."""
    from dlcheck.config import UserError

    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            return
        fresh = not file.exists()
        with file.open("ab"):
            pass
        if fresh:
            file.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot write {file}: {reason}"
        raise UserError(message) from error


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")


def _say_of_pictures(seen: Observation, folder: Path) -> None:
    """Say on stderr which pictures were written, and what there was none of."""
    count = len(seen.settings.get("pictures") or ())
    missing = seen.settings.get("pictures_missing")
    files = f"{count} picture{'' if count == 1 else 's'} in {folder}"
    streams.complain(files + (f" ({missing})" if missing else ""))


def _rendered(report: Report, format_: str, **look: Any) -> str:
    if format_ == "json":
        from dlcheck.reporters import json

        return json.render(report)
    from dlcheck.reporters import terminal

    return terminal.render(report, **look)


def _show(report: Report, options: dict[str, Any]) -> None:
    verbosity = -1 if options["quiet"] else options["verbose"]
    text = _rendered(
        report,
        options["format_"],
        width=streams.width(),
        color=streams.wants_color(options["color"]),
        ascii_only=not streams.takes_boxes(),
        verbosity=verbosity,
    )
    streams.write(text)
