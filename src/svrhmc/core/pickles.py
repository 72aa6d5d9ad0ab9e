"""Functions in a pickle: by their names, or by value where no module has them by name."""

from __future__ import annotations

import pickle
from typing import Any

from svrhmc.core.errors import requirement


def pickled(functions: Any) -> bytes:
    """The bytes from which `pickle.loads` makes them again; by cloudpickle where pickle alone cannot."""
    try:
        return pickle.dumps(functions)
    except Exception:  # pickle raises AttributeError, TypeError or PicklingError for functions without a name
        allowed = "defined at the top of a module, so that a pickle can name them"
        try:
            import cloudpickle
        except ModuleNotFoundError:
            why = "a pickle has them by value where cloudpickle is installed: pip install cloudpickle"
            raise requirement("the functions of a pickled model", allowed, "functions without a name", why) from None
        try:
            made: bytes = cloudpickle.dumps(functions)
        except Exception as error:
            found = f"functions that cloudpickle cannot take either ({error})"
            raise requirement("the functions of a pickled model", allowed, found, "make the model anew") from error
        return made
