"""`penstock completion`: print the script that enables completion in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from penstock.cli.app import Command

VARIABLE = "_PENSTOCK_COMPLETE"


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the script that completes commands, options, ids and names in a shell.

    \b
    bash  add to ~/.bashrc:                   eval "$(penstock completion bash)"
    zsh   add to ~/.zshrc:                    eval "$(penstock completion zsh)"
    fish  add to ~/.config/fish/config.fish:  penstock completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "penstock", VARIABLE).source())
