"""`rag keys`."""

from typing import Annotated

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows
from rag_core.errors import UsageError
from rag_core.scopes import ROLES, expand_roles, parse_scopes
from rag_core.storage.keys import Keys

app = typer.Typer(help="API keys: create, list and revoke them.", no_args_is_help=True)


@app.command()
@command
def create(
    options: GlobalOptions,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="A scope, such as retrieve:read; repeatable.", show_default=False),
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(help=f"A set of scopes: {', '.join(ROLES)}; repeatable.", show_default=False)
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A group whose documents the key can read; repeatable.", show_default=False)
    ] = None,
    user: Annotated[
        str, typer.Option(help="The user who owns the key's conversations; by default the key.", show_default=False)
    ] = "",
    name: Annotated[str, typer.Option(help="What the key is for.", show_default=False)] = "",
) -> None:
    """Create a key of the tenant (--tenant). The key is printed once; the store has only a hash of it.

    Example: rag keys create --role reader --group staff --name "search page"
    """
    scopes = parse_scopes(scope or ()) | expand_roles(role or ())
    if not scopes:
        raise UsageError(f"a key needs a scope or a role: pass --role reader, or another of {', '.join(ROLES)}")
    with open_store(options).connect() as connection:
        key = Keys(connection, options.settings.tenant).create(scopes, group or (), name, user)
    if options.json:
        print_json({"id": key.id, "key": key.text, "tenant": options.settings.tenant, "scopes": sorted(scopes)})
    else:
        typer.echo(key.text)
        typer.echo("store this key now: it cannot be shown again", err=True)


@app.command("list")
@command
def list_(options: GlobalOptions) -> None:
    """List the keys of the tenant, without their secrets.

    Example: rag keys list
    """
    with open_store(options).connect() as connection:
        rows = Keys(connection, options.settings.tenant).list_all()
    columns = ("id", "name", "user_id", "scopes", "groups", "created_at", "expires_at", "last_used_at", "revoked_at")
    print_rows(rows, columns, options, f"no keys of tenant {options.settings.tenant}")


@app.command()
@command
def revoke(
    id: Annotated[str, typer.Argument(help="The id of the key: its part after rk_.")], options: GlobalOptions
) -> None:
    """Revoke a key. Gateways accept it for at most ten seconds more.

    Example: rag keys revoke a1B2c3D4
    """
    with open_store(options).connect() as connection:
        Keys(connection, options.settings.tenant).revoke(id)
    if options.json:
        print_json({"revoked": id})
    elif not options.quiet:
        typer.echo(f"revoked {id}")
