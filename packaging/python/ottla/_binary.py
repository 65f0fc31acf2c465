"""Where the program `ottla` is: where the installer put this package's scripts."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Iterator

BINARY_VARIABLE = "OTTLA_BINARY"


class BinaryNotFound(FileNotFoundError):
    """The program `ottla` is in none of the places where installers put scripts."""


def find_binary() -> Path:
    """Return the program `ottla`: OTTLA_BINARY, else this installation's, else that of PATH."""
    stated = os.environ.get(BINARY_VARIABLE)
    if stated:
        if not Path(stated).is_file():
            raise BinaryNotFound(f"{BINARY_VARIABLE}={stated}: no such file")
        return Path(stated)
    places = list(_script_directories())
    for place in places:
        if (place / "ottla").is_file():
            return place / "ottla"
    on_path = shutil.which("ottla")
    if on_path is None:
        searched = ", ".join(str(place) for place in places)
        raise BinaryNotFound(f"no program `ottla` in {searched} or in PATH; {BINARY_VARIABLE} can name one")
    return Path(on_path)


def _script_directories() -> Iterator[Path]:
    yield Path(sysconfig.get_path("scripts"))
    # `pip install --user`
    yield Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    # `pip install --target DIRECTORY`
    yield Path(__file__).resolve().parent.parent / "bin"
