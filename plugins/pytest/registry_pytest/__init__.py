"""The pytest plugin: conformance of a backend as tests.

    pytest --registry-backend NAME [--registry-op OP ...] [--registry-cases N] [--registry-seed N]

Beside the tests that pytest collects, one for each op that the backend claims and each thing that is checked.
They have the marker ``registry``: ``-m registry`` runs no others. Without the option nothing is collected,
and nothing imported: pytest loads this module at every start.
"""

from __future__ import annotations

import pytest

MARKER = "registry: a conformance check of the backend that --registry-backend names"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("registry", "Kernel Registry")
    group.addoption("--registry-backend", metavar="NAME", help="check this backend's conformance")
    group.addoption(
        "--registry-op",
        metavar="OP",
        action="append",
        default=[],
        help="check this op; may be repeated (default: every op that the backend claims)",
    )
    group.addoption(
        "--registry-cases",
        metavar="N",
        type=int,
        default=20,
        help="draw so many requests for each op and check (default: 20)",
    )
    group.addoption(
        "--registry-seed", metavar="N", type=int, default=0, help="one seed, the same requests (default: 0)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Adds the checks, before ``-k`` and ``-m`` select."""
    if config.getoption("registry_backend") is not None:
        from .checks import collect

        items += collect(session)
