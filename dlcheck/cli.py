"""The command line: options and exit statuses. What they mean is decided elsewhere."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlcheck import output, streams
from dlcheck.options import common, epochs, reporting, verbose

if TYPE_CHECKING:
    from dlcheck.config import Config
    from dlcheck.findings import Report
    from dlcheck.gate import Gate
    from dlcheck.observation import Observation
    from dlcheck.ranks import Rank
    from dlcheck.session import Job

OK, FOUND, USAGE, OURS, INTERRUPTED = 0, 1, 2, 3, 128 + signal.SIGINT
# The command that torchrun may split over ranks; of the others rank 0 runs all.
SHARED_OUT = "shapes"


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


@cli.command(short_help="Find what grows: memory, handles, processes, shared memory.")
@click.argument("arguments", nargs=-1, metavar="[TARGET] [KEY=VALUE...]")
@epochs
@common
def leak(arguments: tuple[str, ...], **options: Any) -> int:
    """Find what grows from epoch to epoch, in the main process and in every worker.

    Reads a few epochs as the training job would, calls `step` with each batch when the config
    names one, and says which process keeps what, and where.

    \b
    Examples:
      dlcheck leak --epochs 3
      dlcheck leak configs/cats.yaml loader.num_workers=4 --budget 5m
      dlcheck leak cats/data.py:make_loader --epochs 5 --epoch-batches 200
    """
    return _run("leak", arguments, options)


@cli.command(short_help="The check before a job: everything, against limits and a baseline.")
@click.argument("arguments", nargs=-1, metavar="[TARGET] [KEY=VALUE...]")
@epochs
@common
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Findings that are accepted; new ones alone fail.  [default: `gate: {baseline}`]",
)
@click.option("--update-baseline", is_flag=True, help="Accept what this run finds from now on.")
@click.pass_context
def gate(ctx: click.Context, /, arguments: tuple[str, ...], **options: Any) -> int:
    """Check everything before a job, in one drive, against the config's limits and a baseline.

    What `gate:` of the config says counts unless an option says otherwise. Rules that judge the
    machine wait for `machine:`, since CI runs on another. It needs no accelerator.

    \b
    Examples:
      dlcheck gate
      dlcheck gate configs/cats.yaml --fail-on warning --output gate.sarif --output gate.xml
      dlcheck gate --baseline dlcheck-baseline.json --update-baseline
    """
    from dlcheck.gate import Gate

    given = {name for name in options if _given(ctx, name)}
    return _run("gate", arguments, options, lambda loaded: Gate(options, loaded, given))


@cli.command(short_help="Write `expect:` from a good run.")
@click.argument("arguments", nargs=-1, metavar="[TARGET] [KEY=VALUE...]")
@common
def freeze(arguments: tuple[str, ...], **options: Any) -> int:
    """Write what a good run shows into the config, as `expect:`; `gate` then fails on change.

    Shapes, dtypes, layouts, ranges, classes, normalisation. What the config expects already stays
    where it holds; the rest of the file is left as it is. For a target that is no config the YAML
    goes to stdout.

    \b
    Examples:
      dlcheck freeze
      dlcheck freeze configs/cats.yaml --samples all
      dlcheck freeze cats.data:make_loader > dlcheck.yaml
    """
    from dlcheck import config, judging, session
    from dlcheck import freeze as frozen

    target, overrides = _split_arguments(arguments)
    outputs = output.planned(options)
    loaded = config.load(target, overrides)
    unbound = frozen.unbound(loaded)
    choice = judging.choice(unbound, options)
    outcome = session.run(_job("shapes", unbound, options))
    report = judging.judged("freeze", unbound, outcome.observation, choice, options["fail_on"])
    if report.verdict == "fail" or outcome.observation.cut:
        output.deliver(report, outputs, options)
        streams.complain("nothing is frozen: the run must be good first")
        return FOUND if outcome.signal is None else 128 + outcome.signal
    return OK if frozen.deliver(loaded, outcome.observation) else FOUND


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


@cli.command(short_help="Render a saved run again, or compare two.")
@click.argument("runs", nargs=-1, metavar="RUN.json [LATER.json]")
@click.option("--rejudge", is_flag=True, help="Run the rules of this dlcheck over the saved run.")
@click.option("--schema", is_flag=True, help="Write the JSON Schema of the JSON report.")
@reporting
@click.pass_context
def report(
    ctx: click.Context, /, runs: tuple[str, ...], rejudge: bool, schema: bool, **options: Any
) -> int:
    """Render a run that --save wrote, in any format, or compare it with a later one.

    Two runs: new and cured findings, and what changed in the batch, in memory and in speed; then
    new findings alone decide the exit status. A run may be `-`, which is stdin.

    \b
    Examples:
      dlcheck report run.json --output report.sarif --output report.md
      dlcheck report run.json --rejudge --fail-on warning
      dlcheck report monday.json friday.json
      dlcheck report --schema > report.schema.json
    """
    from dlcheck import saved

    if schema:
        saved.show_schema()
        return OK
    if not 1 <= len(runs) <= 2:  # noqa: PLR2004 - one or two
        raise click.UsageError("one saved run, or two to compare")
    limit = options["fail_on"] if _given(ctx, "fail_on") else None
    options["rejudge"] = rejudge
    shown = [saved.chosen(saved.load(run), options, limit=limit) for run in runs]
    if len(shown) > 1:
        return FOUND if saved.compared(shown[0], shown[1], options, limit=limit) else OK
    output.deliver(shown[0], output.planned(options), options)
    return _status(shown[0], options)


def _given(ctx: click.Context, name: str) -> bool:
    """Tell whether the user set an option."""
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; ranks above 0 have none but 0."""
    rank = _rank()
    if rank is None or rank.first:
        return _main(arguments)
    words = sys.argv[1:] if arguments is None else list(arguments)
    if SHARED_OUT in words[:1]:
        _main(arguments)
    return OK


def _main(arguments: Sequence[str] | None) -> int:
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


def _run(
    command: str,
    arguments: Sequence[str],
    options: dict[str, Any],
    gate_of: Callable[[Config], Gate] | None = None,
) -> int:
    from dlcheck import config, judging, session

    target, overrides = _split_arguments(arguments)
    rank = _rank() if command == SHARED_OUT else None
    outputs = output.planned(options) if not rank or rank.first else []
    loaded = config.load(target, overrides)
    gate = gate_of(loaded) if gate_of else None
    options = gate.options if gate else options
    choice = judging.choice(loaded, options, gate.left_out if gate else None)
    outcome = session.run(_job(command, loaded, options, rank))
    if rank and not rank.first:
        return OK
    seen = gate.elsewhere(outcome.observation) if gate else outcome.observation
    report = judging.judged(command, loaded, seen, choice, options["fail_on"])
    report = gate.accepted(report) if gate else report
    output.deliver(report, outputs, options)
    if options["images"]:
        _say_of_pictures(outcome.observation, options["images"])
    if outcome.signal is not None:
        return 128 + outcome.signal
    return _status(report, options)


def _status(report: Report, options: dict[str, Any]) -> int:
    incomplete = report.verdict == "incomplete" and options["fail_on_incomplete"]
    return FOUND if report.verdict == "fail" or incomplete else OK


def _rank() -> Rank | None:
    """Tell which rank this is of those that torchrun started; None where it started none."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    from dlcheck.ranks import rank_of

    return rank_of(os.environ)


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


def _job(command: str, loaded: Config, options: dict[str, Any], rank: Rank | None = None) -> Job:
    from dlcheck.session import Job

    seed = options["seed"]
    return Job(
        command=command,
        config=loaded,
        python=options["python"] or sys.executable,
        budget=options["budget"],
        samples=options["samples"],
        seed=rank.seed if rank and seed is None else seed,
        hang_after=options["hang_after"],
        device=options.get("device") or "",
        split=options["split"],
        quiet=options["quiet"] or (rank is not None and not rank.first),
        rank=rank,
        images=str(options["images"]) if options["images"] else None,
        thumbnails=output.wants_pictures(options),
        epochs=options.get("epochs", 0),
        epoch_batches=options.get("epoch_batches"),
    )


def _say_of_pictures(seen: Observation, folder: Path) -> None:
    """Say on stderr which pictures were written, and what there was none of."""
    count = len(seen.settings.get("pictures") or ())
    missing = seen.settings.get("pictures_missing")
    files = f"{count} picture{'' if count == 1 else 's'} in {folder}"
    streams.complain(files + (f" ({missing})" if missing else ""))
