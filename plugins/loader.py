"""From `module:Class` in the configuration to a plugin object with checked settings.

Every mistake becomes one line that names the plugin: not found is told from "its own
import failed", and a wrong setting carries its path.
"""

import importlib
import importlib.util
from typing import Any

import msgspec

from plugins.api import Plugin, PluginError


def load(use: str, settings: dict[str, Any]) -> Plugin:
    """Import a plugin's class and make it with its settings."""
    kind = find(use)
    try:
        return kind(msgspec.convert(settings, kind.Settings))
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        where = path.strip("`").removeprefix("$").lstrip(".")
        raise PluginError(f"plugin {use}: {where + ': ' if where else ''}{reason}") from None


def find(use: str) -> type[Plugin]:
    """Import a plugin's class."""
    module_name, colon, class_name = use.partition(":")
    if not colon or not module_name or not class_name:
        raise PluginError(f"plugin {use!r}: expected module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise PluginError(f"plugin {use}: no module named {error.name!r}") from None
        raise PluginError(f"plugin {use}: its own import failed: {error}") from error
    except Exception as error:
        raise PluginError(f"plugin {use}: its own import failed: {error!r}") from error
    kind = getattr(module, class_name, None)
    if kind is None:
        raise PluginError(f"plugin {use}: module {module_name!r} has no {class_name!r}")
    if not (isinstance(kind, type) and issubclass(kind, Plugin)):
        raise PluginError(f"plugin {use}: {class_name!r} is no subclass of plugins.api.Plugin")
    return kind
