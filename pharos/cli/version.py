"""`pharos version`. Forbidden here: importing anything large."""

import click


@click.command("version", short_help="Print the version.")
def command() -> int:
    """Print the version of Pharos and of the Python that runs it."""
    click.echo(text())
    return 0


def text() -> str:
    """What `pharos version` and `pharos --version` print."""
    import platform
    from importlib import metadata

    try:
        found = metadata.version("pharos")
    except metadata.PackageNotFoundError:
        found = "unknown (not installed as a package)"
    return f"pharos {found} (Python {platform.python_version()})"
