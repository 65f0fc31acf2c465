"""Tests as a user of the wheel writes them; they run in a fresh environment with the wheel installed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ottla
import pytest
from round_trip import round_trip


def test_the_fixture_is_a_broker(ottla_broker):
    round_trip(ottla_broker.bootstrap_servers)
    assert ottla_broker.is_running()


def test_the_program_is_installed():
    output = subprocess.run(["ottla", "--version"], capture_output=True, check=True, text=True).stdout
    assert output.startswith("ottla ")


def test_without_pytest_and_with_keys_of_the_configuration():
    with ottla.broker({"num.partitions": "3"}) as broker:
        round_trip(broker.bootstrap_servers)
        directory = broker.data_directory
        assert len(list(directory.glob("round-trip-*-2"))) == 1
        assert broker.admin_url.startswith("http://127.0.0.1:")
        assert "started" in broker.log
    assert not broker.is_running()
    assert not directory.exists()


def test_what_the_broker_says_against_a_start_is_in_the_error():
    with pytest.raises(ottla.BrokerFailed, match="num.partitions"):
        with ottla.broker({"num.partitions": "none"}):
            pass


def test_a_broker_that_is_killed_is_no_success():
    with pytest.raises(ottla.BrokerFailed, match="status -9"):
        with ottla.broker() as broker:
            os.kill(broker.pid, signal.SIGKILL)
            while broker.is_running():
                time.sleep(0.01)


def test_a_test_that_is_killed_leaves_no_broker():
    script = "import ottla, time\nwith ottla.broker() as b:\n  print(b.pid, flush=True)\n  time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        process.kill()
    while is_alive(pid):
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """A zombie has ended: in a container there may be no process that waits for it."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
