"""The commands and their options. What they do is imported when they run, so that `--help` is quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["main"]

app = typer.Typer(
    name="outrider",
    help="Collect experience for reinforcement learning, and look at what was collected.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Debug = Annotated[bool, typer.Option("--debug", envvar="OUTRIDER_DEBUG", help="Show the traceback of an error.")]


class Fate(StrEnum):
    """What becomes of an environment that fails."""

    RAISE = "raise"
    RESTART = "restart"
    DROP = "drop"


def main() -> None:
    """Run the command line of this process."""
    app()


def show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the value of the flag
    """Print the version and leave, if it is wanted."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Collect experience for reinforcement learning, and look at what was collected."""


@app.command()
def collect(  # noqa: PLR0913 - the parameters of a command are its options
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="A Gymnasium id (CartPole-v1, module:Id), or file.py:name of a function without parameters that "
            "returns an environment, or of an Env class.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the dataset.")],
    steps: Annotated[int | None, typer.Option(min=1, help="Collect exactly so many steps.")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Collect exactly so many whole episodes.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.PY:NAME",
            help="An outrider.Policy; a function of the batch of observations; or a factory of one of these: a class, "
            "or a function without parameters. Without it, actions are random.",
        ),
    ] = None,
    envs: Annotated[int, typer.Option(min=1, help="How many environments step side by side.")] = 16,
    workers: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Worker processes that run environments and policy: 0 for none, auto for one per core. The rows are "
            "the same for a policy that gives the same action for the same row.",
        ),
    ] = "0",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default=False,
            help="Of environments and random actions; by default 0, with --append the number of steps stored before.",
        ),
    ] = None,
    max_episode_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Truncate episodes after so many steps, beside the environment's own limit."),
    ] = None,
    step_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long a reset or step may take. The environments then run in workers of their own.",
        ),
    ] = None,
    on_failure: Annotated[
        Fate,
        typer.Option(
            help="What becomes of an environment that fails or takes too long: raise ends the collection, restart "
            "makes it anew, drop goes on without it; for these two, environments run in workers of their own.",
        ),
    ] = Fate.RAISE,
    append: Annotated[bool, typer.Option("--append", help="Add to the dataset that is there.")] = False,
    debug: Debug = False,
) -> None:
    """Collect steps or episodes into a dataset. What has been stored stays, whatever happens later."""
    from outrider.cli.failures import reported

    with reported(debug=debug, out=out):
        from outrider.cli.collect import Limits, Request, run

        limits = Limits(max_episode_steps, step_timeout, on_failure.value)
        run(Request(env, policy, out, envs, workers, seed, append, limits), steps, episodes)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a dataset.")],
    *,
    episodes: Annotated[int, typer.Option(min=0, help="How many episodes to list.")] = 5,
    debug: Debug = False,
) -> None:
    """Show what a dataset holds: counts, returns, columns, where it came from, the first episodes."""
    from outrider.cli.failures import reported

    with reported(debug=debug):
        from outrider.cli.show import run

        run(folder, episodes)
