"""Nodes of a network on one machine: network namespaces, joined by a bridge that lies in a namespace of its own.

    node 0  10.77.0.1 --veth--+
    node 1  10.77.0.2 --veth--+-- bridge
    node 2  10.77.0.3 --veth--+

Nothing of the machine's own network is touched. Ranks of one node share its mounts as well, by which Paceline tells
nodes apart. Needs root and iproute2. From Python: Namespaces. As a command,

    python namespaces.py 4 -- COMMAND

runs a program's ranks, one on each node, and exits with the first exit code that is not 0.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_numbers = itertools.count()


class NotPermitted(Exception):
    """This process may not make network namespaces; the message says why."""


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        raise NotPermitted("network namespaces need the program `ip` (Debian package iproute2)") from error
    except subprocess.CalledProcessError as error:
        raise NotPermitted(f"ip {' '.join(words)}: {error.stderr.strip()}") from error


class Namespaces:
    """`count` nodes, while the context lasts."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._name = f"paceline-{os.getpid()}-{next(_numbers)}"
        self._keepers: list[subprocess.Popen[str]] = []

    def address(self, node: int) -> str:
        return f"10.77.0.{node + 1}"

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a node."""
        where = ["--target", str(self._keepers[node].pid), "--net", "--mount", f"--wd={Path.cwd()}"]
        return ["nsenter", *where, *command]

    def cut_off(self, node: int) -> None:
        """Take a node's cable out: nothing comes or goes, and no connection is closed."""
        _ip("-n", self._hub, "link", "set", f"port{node}", "down")

    def link_local(self, node: int, interface: str) -> str:
        """Give a node's interface that name and a link-local address, which comes back with the name as its zone."""
        name, address = f"{self._name}-{node}", f"fe80::77:{node + 1}"
        _ip("-n", name, "link", "set", "eth0", "down")
        _ip("-n", name, "link", "set", "eth0", "name", interface)
        _ip("-n", name, "link", "set", interface, "up")
        _ip("-n", name, "address", "add", f"{address}/64", "dev", interface, "nodad")
        return f"{address}%{interface}"

    def shape(self, node: int, mbits: float, bucket_kb: int = 8) -> None:
        """Limit a node's cable to this rate, each way.

        What the token bucket holds is not shaped, so it is small; but one that is empty before the kernel's timers fill
        it again, as 8 kB at 1 Gbit/s may be, makes the cable slower: streams alone take a larger one.
        """
        self._limit(f"{self._name}-{node}", "eth0", mbits, bucket_kb)
        self._limit(self._hub, f"port{node}", mbits, bucket_kb)

    def split(self, nodes: Sequence[int], mbits: float, bucket_kb: int = 8) -> None:
        """Put these nodes on a second bridge, which one cable of this rate joins with the first."""
        _ip("-n", self._hub, "link", "add", "second", "type", "bridge")
        _ip("-n", self._hub, "link", "add", "up0", "type", "veth", "peer", "up1")
        for device, bridge in (("up0", "bridge"), ("up1", "second")):
            _ip("-n", self._hub, "link", "set", device, "master", bridge, "up")
            self._limit(self._hub, device, mbits, bucket_kb)
        _ip("-n", self._hub, "link", "set", "second", "up")
        for node in nodes:
            _ip("-n", self._hub, "link", "set", f"port{node}", "master", "second")

    @staticmethod
    def _limit(namespace: str, device: str, mbits: float, bucket_kb: int) -> None:
        limit = ["tbf", "rate", f"{mbits:g}mbit", "burst", f"{bucket_kb}kb", "latency", "200ms"]
        _ip("netns", "exec", namespace, "tc", "qdisc", "replace", "dev", device, "root", *limit)

    @property
    def _hub(self) -> str:
        return f"{self._name}-hub"

    def __enter__(self) -> Namespaces:
        try:
            _ip("netns", "add", self._hub)
            _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._hub, "link", "set", "bridge", "up")
            for node in range(self.count):
                name = f"{self._name}-{node}"
                _ip("netns", "add", name)
                _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", f"port{node}", "netns", self._hub)
                _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", self._hub, "link", "set", f"port{node}", "master", "bridge", "up")
                self._keepers.append(self._keep(name))
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def _keep(name: str) -> subprocess.Popen[str]:
        """A process that keeps a node's mounts, until its standard input is closed."""
        words = ["ip", "netns", "exec", name, "sh", "-c", "echo here; exec cat"]
        keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert keeper.stdout is not None
        if keeper.stdout.readline() != "here\n":
            raise NotPermitted(f"{' '.join(words)} ended: {keeper.wait()}")
        return keeper

    def __exit__(self, *_: object) -> None:
        for keeper in self._keepers:
            keeper.communicate()
        self._keepers.clear()
        for name in [*(f"{self._name}-{node}" for node in range(self.count)), self._hub]:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=60)


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    from paceline.launch import rank_environment

    with Namespaces(int(sys.argv[1])) as nodes:
        shared = dict(os.environ) | rank_environment(nodes.count) | {"PACELINE_ADDRESS": f"{nodes.address(0)}:29500"}
        ranks = [
            subprocess.Popen(nodes.command(node, sys.argv[3:]), env=shared | {"PACELINE_RANK": str(node)})
            for node in range(nodes.count)
        ]
        codes = [rank.wait() for rank in ranks]
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
