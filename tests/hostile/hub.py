"""A Hub of which each answer may be odd."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from huggingface_hub import constants

from calc import Architecture
from presets import hub
from tests import hub_server

Reply = tuple[dict[str, bytes], str, bytes, int, dict[str, str]]


@contextmanager
def reading_hub(cache: Path) -> Iterator[Callable[[Reply], None]]:
    """Asks it for a repository."""
    with (
        hub_server.hub({}) as server,
        patch.multiple(
            constants,
            ENDPOINT=server.endpoint,
            HUGGINGFACE_CO_URL_TEMPLATE=server.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
            HF_HUB_CACHE=str(cache),
        ),
    ):
        number = 0

        def read(reply: Reply) -> None:
            nonlocal number
            files, path, body, status, headers = reply
            number += 1
            name = f"o/m{number}"
            server.repositories = {name: files}
            server.odd = {path.replace("o/m", name): hub_server.Odd(body, status, headers)}
            model: Any = hub.fetch(name)
            Architecture.from_config(model.config)
            hub.checkpoint(model)

        yield read
