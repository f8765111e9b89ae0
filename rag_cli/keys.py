"""`rag keys`."""

from typing import Annotated

import typer

from rag_cli.connections import open_store
from rag_cli.durations import parse_duration
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows
from rag_core.errors import UsageError
from rag_core.scopes import ROLES, expand_roles, parse_scopes
from rag_core.storage.keys import KeyParts, Keys

app = typer.Typer(help="API keys: create, list, rotate and revoke them.", no_args_is_help=True)
KeyId = Annotated[str, typer.Argument(help="The id of the key: its part after rk_.")]
Expires = typer.Option(
    metavar="DURATION", help="When the key expires, such as 90d; by default never.", show_default=False
)


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
    expires: Annotated[str, Expires] = "",
) -> None:
    """Create a key of the tenant (--tenant). The key is printed once; the store has only a hash of it.

    Example: rag keys create --role reader --group staff --name "search page" --expires 90d
    """
    scopes = parse_scopes(scope or ()) | expand_roles(role or ())
    if not scopes:
        raise UsageError(f"a key needs a scope or a role: pass --role reader, or another of {', '.join(ROLES)}")
    seconds = parse_duration(expires) if expires else None
    with open_store(options).connect() as connection:
        key = Keys(connection, options.settings.tenant).create(scopes, group or (), name, user, seconds)
    _print_key(key, options, scopes=sorted(scopes))


@app.command("list")
@command
def list_(options: GlobalOptions) -> None:
    """List the keys of the tenant, without their secrets.

    Example: rag keys list
    """
    with open_store(options).connect() as connection:
        rows = Keys(connection, options.settings.tenant).list_all()
    columns = ("id", "status", "name", "user_id", "scopes", "groups", "expires_at", "last_used_at")
    print_rows(rows, columns, options, f"no keys of tenant {options.settings.tenant}")


@app.command()
@command
def rotate(
    id: KeyId,
    options: GlobalOptions,
    grace: Annotated[
        str, typer.Option(help="How long the old key still works, such as 1h; by default it ends.", show_default=False)
    ] = "",
    expires: Annotated[str, Expires] = "",
) -> None:
    """Replace a key by a new one with the same user, scopes and groups. The new key is printed once.

    Without --expires, the new key expires when the old one would have.

    Example: rag keys rotate a1B2c3D4 --grace 1h --expires 90d
    """
    seconds = parse_duration(expires) if expires else None
    with open_store(options).connect() as connection:
        keys = Keys(connection, options.settings.tenant)
        key = keys.rotate(id, parse_duration(grace) if grace else 0, seconds)
    _print_key(key, options, replaces=id)


@app.command()
@command
def revoke(
    options: GlobalOptions,
    id: Annotated[str, typer.Argument(help="The id of the key: its part after rk_.", show_default=False)] = "",
    user: Annotated[str, typer.Option(help="Revoke all keys of this user.", show_default=False)] = "",
) -> None:
    """Revoke a key, or all keys of a user. Gateways accept them for at most ten seconds more.

    Example: rag keys revoke a1B2c3D4
    """
    if bool(id) == bool(user):
        raise UsageError("pass the id of a key, or --user USER for all keys of a user")
    with open_store(options).connect() as connection:
        keys = Keys(connection, options.settings.tenant)
        if id:
            keys.revoke(id)
        ids = [id] if id else keys.revoke_user(user)
    if options.json:
        print_json({"revoked": ids})
    elif not options.quiet:
        typer.echo(f"revoked {', '.join(ids)}")


def _print_key(key: KeyParts, options: GlobalOptions, **facts: object) -> None:
    if options.json:
        print_json({"id": key.id, "key": key.text, "tenant": options.settings.tenant, **facts})
    else:
        typer.echo(key.text)
        typer.echo("store this key now: it cannot be shown again", err=True)
