"""The size of the datagrams of a QUIC connection (RFC 9000 §14).

Over a network they have the 1,200 bytes that every path must carry: aioquic does not search for more. The
loopback interface of Linux carries 64 KiB. The work for each datagram is the main cost of HTTP/3, so they are
larger to a peer on the same machine. A peer may want them smaller, and its address may change to one across a
network (§9).

The private names of aioquic used here are ``_parse_transport_parameters``, ``_network_paths``,
``_handshake_confirmed`` and ``_max_datagram_size``; the package pins the minor version.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from aioquic._buffer import Buffer
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.packet import pull_quic_transport_parameters

LOCAL_DATAGRAM_BYTES: Final = 16_384
"""Largest datagram to a peer on the same machine; aioquic writes lengths in a stream's frames up to this."""


class Datagrams:
    """Sets the size of the datagrams that one end of a connection sends."""

    def __init__(self, quic: Any) -> None:
        self._quic = quic
        self._parse = quic._parse_transport_parameters
        self._accepted_bytes = LOCAL_DATAGRAM_BYTES
        """Largest datagram that the peer accepts (RFC 9000 §18.2, max_udp_payload_size)."""
        quic._parse_transport_parameters = self._parse_parameters

    def _parse_parameters(self, data: bytes, from_session_ticket: bool = False) -> None:
        self._parse(data, from_session_ticket)
        wanted = pull_quic_transport_parameters(Buffer(data=data)).max_udp_payload_size
        if wanted is not None:
            self._accepted_bytes = min(LOCAL_DATAGRAM_BYTES, wanted)

    def fit(self) -> None:
        """Choose the size for the peer's present address; during the handshake it is the smallest."""
        quic = self._quic
        paths = quic._network_paths
        is_local = quic._handshake_confirmed and paths and is_this_machine(str(paths[0].addr[0]))
        quic._max_datagram_size = self._accepted_bytes if is_local else SMALLEST_MAX_DATAGRAM_SIZE


@lru_cache(1_024)
def is_this_machine(host: str) -> bool:
    """Return whether an IP address is reached by the loopback interface for certain."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
