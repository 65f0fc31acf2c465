"""The fixtures `ottla_broker` and `ottla_properties`, which pytest finds by entry point."""

from __future__ import annotations

from typing import Iterator, Mapping

import pytest

import ottla


@pytest.fixture(scope="session")
def ottla_properties() -> Mapping[str, str]:
    """Keys of server.properties for `ottla_broker`; override this fixture in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_properties: Mapping[str, str]) -> Iterator[ottla.Broker]:
    """One broker for the whole run, on a free port: use topics with names of their own."""
    with ottla.broker(ottla_properties) as broker:
        yield broker
