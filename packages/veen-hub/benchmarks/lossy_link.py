"""A slow link that loses packets, between two network namespaces.

Each end is a TUN device, and a process carries the packets. It does what ``netem delay 50ms loss 2%`` does,
on kernels without netem. Needs root and /dev/net/tun.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from multiprocessing import Process
from typing import Any

HUB_ADDRESS, CLIENT_ADDRESS = "10.9.0.1", "10.9.0.2"
DELAY_SEC = 0.05
LOSS = 0.02
NEW_NETWORK = 0x4000_0000
SET_TUN = 0x4004_54CA
TUN_WITHOUT_HEADER = 0x1001
MAX_PACKET = 65_536


def is_possible() -> bool:
    """Return whether this process may make namespaces and TUN devices."""
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun")


def enter_namespace(address: str, link: socket.socket) -> None:
    """Move this process to a new network namespace whose only other end is the link."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_TUN, struct.pack("16sH", b"tun0", TUN_WITHOUT_HEADER))
    for command in (
        "ip link set lo up",
        f"ip address add {address}/24 dev tun0",
        "ip link set tun0 up mtu 1500",
    ):
        subprocess.run(command.split(), check=True)  # noqa: S603 - the commands above
    socket.send_fds(link, [b"."], [device])


@contextlib.contextmanager
def carrying(ends: list[socket.socket]) -> Iterator[None]:
    """Carry packets between the devices that both ends send, until this block is left."""
    devices = [socket.recv_fds(end, 1, 1)[1][0] for end in ends]
    carrier = Process(target=_carry, args=(devices,), daemon=True)
    carrier.start()
    try:
        yield
    finally:
        carrier.kill()
        carrier.join()
        for device in devices:
            os.close(device)


def _carry(devices: list[int]) -> None:
    chance = random.Random(1)  # noqa: S311 - the same losses in every run

    async def carry() -> None:
        loop = asyncio.get_running_loop()

        def forward(source: int, target: int) -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(source, MAX_PACKET)
                    if chance.random() >= LOSS:
                        loop.call_later(DELAY_SEC, _write, target, packet)

        for source, target in (devices, devices[::-1]):
            loop.add_reader(source, forward, source, target)
        await asyncio.Event().wait()

    asyncio.run(carry())


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # the device's queue is full: the packet is lost
        os.write(device, packet)


def in_namespace(address: str, link: socket.socket, work: Any, *about: Any) -> Process:
    """Start ``work`` in a process in a namespace of its own."""

    def start() -> None:
        enter_namespace(address, link)
        work(*about)

    process = Process(target=start)
    process.start()
    return process
