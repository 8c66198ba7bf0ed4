"""Registers our environments in Gymnasium, which does not search for any, once both packages are imported."""

from __future__ import annotations

import sys

# Importing `typing` would take as long as everything else; type checkers know this name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def register() -> None:
    """Registers them now if Gymnasium is imported already, otherwise as soon as it is."""
    if "gymnasium" in sys.modules:
        _import_envs()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


def _import_envs() -> None:
    try:
        from . import envs as envs
    except ImportError as error:
        import warnings

        text = f"polygrad's environments are not registered, which need Gymnasium 1.1 or newer: {error}"
        warnings.warn(text, stacklevel=2)


class _AfterGymnasium:
    """Finds the module ``gymnasium`` with the other finders, and has its loader register ours afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _import_envs()

            loader.exec_module = execute_and_register
        return spec
