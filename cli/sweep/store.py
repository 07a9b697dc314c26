"""Rows of a sweep on disk: a file for each part until all are there, then one file."""

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import calc
from calc.errors import shown
from cli.options import bad_question
from cli.sweep.grid import Part

if TYPE_CHECKING:
    import pyarrow

MARK = b"weighbridge.grid"
"""Key of the fingerprint in the metadata of the finished file."""
GROUP_ROWS = 2**17
"""Rows of a row group of the finished file, about."""


class Store:
    """The parts of one grid, and the file that they become. A file is whole or not there: it is written under another
    name and renamed."""

    def __init__(self, out: Path, parts: Sequence[Part]) -> None:
        self.out, self.folder = out, out.with_name(f"{out.name}.parts")
        self.fingerprint = fingerprint(parts)
        self.mark = self.folder / "grid"

    @property
    def is_finished(self) -> bool:
        """Whether the file has all rows of this grid. Raises ConfigError where it has something else."""
        import pyarrow.parquet

        if not self.out.exists():
            return False
        try:
            metadata = pyarrow.parquet.read_schema(self.out).metadata or {}
        except (OSError, pyarrow.ArrowInvalid):
            metadata = {}
        if metadata.get(MARK) != self.fingerprint.encode():
            raise bad_question(
                "{name} exists already, and not from this grid and version: give another --out, or remove it.",
                name=shown(str(self.out)),
            )
        return True

    def open(self) -> None:
        """Makes the folder of the parts. Raises ConfigError where it has those of another grid, or can't be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self.mark.exists():
                replace(self.mark, lambda file: file.write_text(self.fingerprint, encoding="utf-8"))
            same = self.mark.read_text(encoding="utf-8") == self.fingerprint
        except OSError as error:
            raise bad_question(
                "{name} can't be written: {why}.", name=shown(str(self.folder)), why=error.strerror
            ) from None
        if not same:
            raise bad_question(
                "{name} has rows of another grid or version: give another --out, or remove it.",
                name=shown(str(self.folder)),
            )

    def file(self, part: Part) -> Path:
        return self.folder / f"{part.number:06d}.parquet"

    def write(self, part: Part, table: "pyarrow.Table") -> None:
        import pyarrow.parquet

        replace(self.file(part), lambda file: pyarrow.parquet.write_table(table, file))

    def finish(self, parts: Sequence[Part]) -> None:
        """All parts in order as one file; then they are removed."""
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(self.file(parts[0])).with_metadata({MARK: self.fingerprint})

        def join(target: Path) -> None:
            with pyarrow.parquet.ParquetWriter(target, schema) as writer:
                waiting: list[pyarrow.Table] = []
                for part in parts:
                    waiting.append(pyarrow.parquet.read_table(self.file(part)).cast(schema))
                    if sum(table.num_rows for table in waiting) >= GROUP_ROWS or part is parts[-1]:
                        writer.write_table(pyarrow.concat_tables(waiting))
                        waiting = []

        replace(self.out, join)
        rmtree(self.folder)


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file so that it is seen whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    write(new)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(path)


def fingerprint(parts: Sequence[Part]) -> str:
    """SHA-256 of all that rows depend on: the grid with the models' configs, and the code and tables of calc."""
    digest = sha256()
    for part in parts:
        digest.update(part.model_dump_json().encode())
    for folder in calc.__path__:
        for file in sorted(Path(folder).rglob("*")):
            if file.suffix in (".py", ".json", ".toml"):
                digest.update(file.read_bytes())
    return digest.hexdigest()
