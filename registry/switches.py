"""Environment variables that switch something on or off."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ContractError

_MEANINGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def switched(environment: Mapping[str, str], name: str, default: bool = False) -> bool:
    """What a variable says; the default where it is unset or empty.

    Raises:
        ContractError: it says neither 1 (``true``, ``yes``, ``on``) nor 0 (``false``, ``no``, ``off``).
    """
    said = environment.get(name, "").strip().lower()
    if not said:
        return default
    if said not in _MEANINGS:
        raise ContractError(f"{name} is {environment[name]!r}; needed: 1 or 0", argument=name)
    return _MEANINGS[said]
