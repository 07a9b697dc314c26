"""Builds the installable package: the folders of a clone become `weighbridge.calc`, `weighbridge.pages` and so on.

In a clone `calc`, `cli`, `pages` and `presets` stand at the top, where `python -m calc` and Streamlit look for them;
installed, such names would take room that other packages may want. So the build puts them below one name and says so
in their imports. What else a package needs to say stands in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("calc", "cli", "pages", "presets")
IMPORT = re.compile(rf"^(\s*)(from|import) ({'|'.join(FOLDERS)})\b", re.MULTILINE)
LEFT_OUT = ("__pycache__",)


class Build(build_py):
    """Copies the folders, with their data, and renames what they import."""

    def run(self) -> None:
        target = Path(self.build_lib, "weighbridge")
        for file in sources(Path(__file__).parent):
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".py":
                copy.write_text(IMPORT.sub(r"\1\2 weighbridge.\3", file.read_text("utf-8")), "utf-8")
            else:
                copy.write_bytes(file.read_bytes())
        (target / "__init__.py").write_text('"""Weigh a language model before you load it."""\n', "utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [str(path) for path in Path(self.build_lib).rglob("*") if path.is_file()]


def sources(root: Path) -> list[Path]:
    """Files of the package, from the root of the clone."""
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    files += [root / "app.py", root / ".streamlit" / "config.toml"]
    return [path.relative_to(root) for path in files if not set(LEFT_OUT) & set(path.parts)]


setup(cmdclass={"build_py": Build}, packages=["weighbridge"], package_dir={"weighbridge": "."})
