"""Puts tremula_names.pth beside the package: Python reads it when it starts."""

from setuptools import setup
from setuptools.command.build_py import build_py

START_FILE = "tremula_names.pth"


class BuildWithStartFile(build_py):
    """The package, and one file beside it."""

    def run(self) -> None:
        super().run()
        self.copy_file(START_FILE, self.build_lib)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), f"{self.build_lib}/{START_FILE}"]


setup(cmdclass={"build_py": BuildWithStartFile})
