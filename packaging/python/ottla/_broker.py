"""A broker as a child process, with a directory of its own."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, Mapping, Optional

from ottla._binary import find_binary

#: What suits a test. `properties` override it.
#: Records live as long as the test, so nothing waits for the disk.
DEFAULTS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "ottla.admin.listener": "127.0.0.1:0",
    "ottla.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
}

LOG_BYTES_SHOWN = 4096
STOP_SECONDS = 10.0


class BrokerFailed(RuntimeError):
    """The broker did not start, or ended; the message has the end of its log."""


class Broker:
    """A running broker. `ottla.broker()` makes one."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path, ready_line: str) -> None:
        facts = dict(word.split("=", 1) for word in ready_line.split() if "=" in word)
        #: What clients call bootstrap.servers: `host:port`, separated by commas.
        self.bootstrap_servers: str = re.sub(r"[A-Z0-9_.-]+://", "", facts["listeners"])
        #: The address of the console, /metrics and the doctor; None if it is disabled.
        self.admin_url: Optional[str] = facts.get("admin")
        self.cluster_id: str = facts["cluster.id"]
        self.data_directory: Path = directory / "data"
        self._process = process
        self._log = directory / "log"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything that the broker has written to standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        return self._process.poll() is None


@contextmanager
def broker(
    properties: Optional[Mapping[str, str]] = None,
    *,
    start_seconds_max: float = 30.0,
) -> Iterator[Broker]:
    """Run a broker on a free port of 127.0.0.1 until the block ends; its directory is removed.

    `properties` are keys of server.properties, such as {"num.partitions": "3"}.
    Raises BrokerFailed, with the broker's log, if it does not start or has ended by itself.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-") as name:
        directory = Path(name)
        process = _start(directory, {**DEFAULTS, **(properties or {})})
        try:
            ready_line = _ready_line(process, directory, start_seconds_max)
            yield Broker(process, directory, ready_line)
            status = process.poll()
            if status is not None:
                raise BrokerFailed(f"the broker ended with status {status}{_log_end(directory)}")
        finally:
            _stop(process)


def _start(directory: Path, properties: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # The broker stops when its standard input ends: also when this process is killed.
    command = [str(find_binary()), "serve", "--stop-with-stdin"]
    for key, value in {"log.dirs": str(directory / "data"), **properties}.items():
        command += ["--override", f"{key}={value}"]
    with open(directory / "log", "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=directory
        )


def _ready_line(process: "subprocess.Popen[bytes]", directory: Path, seconds_max: float) -> str:
    """Wait for the line that `ottla serve` prints when it accepts connections."""
    output = process.stdout
    assert output is not None
    line = _read_line(output, time.monotonic() + seconds_max)
    if line is None:
        raise BrokerFailed(f"the broker was not ready within {seconds_max} s{_log_end(directory)}")
    if not line.startswith(b"ottla ready "):
        status = process.wait(timeout=STOP_SECONDS)
        raise BrokerFailed(f"the broker did not start: status {status}{_log_end(directory)}")
    return line.decode("utf-8")


def _read_line(output: IO[bytes], deadline: float) -> Optional[bytes]:
    """Return a line, or less at the end of the output; None if the deadline comes first."""
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(remaining):
                return None
            # Not through the buffer of `output`, whose bytes the selector does not see.
            some = os.read(output.fileno(), 512)
            if not some:
                break
            line += some
    return line


def _log_end(directory: Path) -> str:
    text = (directory / "log").read_bytes()[-LOG_BYTES_SHOWN:].decode("utf-8", errors="replace")
    return f"; its log:\n{text}" if text.strip() else "; its log is empty"


def _stop(process: "subprocess.Popen[bytes]") -> None:
    # A process forked by this one may hold the pipe open, so its end alone is not enough.
    process.terminate()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
