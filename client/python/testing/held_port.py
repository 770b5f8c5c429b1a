"""Ports for servers that are told theirs before they listen."""

import socket


class HeldPort:
    """A port of 127.0.0.1 that the system chose and gives to nobody else while this lives: bound, and not listened on, so that connections are refused.
    A server that sets SO_REUSEADDR, as ours, Slurm's, HAProxy, Prometheus and torch do, can listen on it all the same, also after another. `number`;
    `address`: HOST:PORT. Linux."""

    def __init__(self):
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def close(self):
        self._socket.close()
