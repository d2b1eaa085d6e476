"""`python -m agentlab serve notebook_or_module:agent`: serves an agent over HTTP."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from agentlab.errors import AgentlabError

EXTRA = "agentlab-jupyter[serve]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        from agentlab.serving import app
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn"):
            raise
        return _print_error(f"`serve` needs {error.name}: pip install '{EXTRA}'")
    parser = argparse.ArgumentParser("python -m agentlab", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser(
        "serve", help="serve an agent over HTTP: POST /chat, /chat/invoke, /chat/add-ai-message and more"
    )
    app.add_arguments(command)
    command.set_defaults(run=app.run)
    given = parser.parse_args(arguments)
    try:
        return int(given.run(given))
    except AgentlabError as error:
        return _print_error(str(error))


def _print_error(problem: str) -> int:
    print(problem, file=sys.stderr)  # noqa: T201  a command prints its errors
    return 2


if __name__ == "__main__":
    sys.exit(main())
