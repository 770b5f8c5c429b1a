"""When the bytes of gRPC calls crossed the loopback: separates a server's time from that of callers on the same machine. Needs root.

    with Loopback(port) as loopback: ...calls without TLS...
    loopback.calls()    # (connection, stream) -> (request was complete, answer was complete), both in s of time.time()

Connections count from 0 by the order of their first bytes. Stream 2k + 1 is a connection's call k. A process of its own listens, at the
highest priority, so that what it notes is the kernel's time of each packet and nothing is lost.
"""

import ctypes
import multiprocessing
import os
import socket
import struct

ETH_P_IP, SO_ATTACH_FILTER, SO_TIMESTAMPNS, SO_RCVBUFFORCE, PACKET_HOST = 0x0800, 26, 35, 33, 0
HEADERS, END_STREAM, PREFACE_BYTES = 1, 1, 24
RECEIVE_BYTES = 256 << 20


def port_filter(port):
    """Classic BPF: IPv4 without options, TCP, from or to the port, as it is received (each packet is also seen as it is sent)."""
    load_half, load_byte, jump_equal, give = 0x28, 0x30, 0x15, 0x06
    packet_type = 0xFFFFF000 + 4  # SKF_AD_OFF + SKF_AD_PKTTYPE
    return ((load_byte, 0, 0, packet_type), (jump_equal, 0, 6, PACKET_HOST), (load_byte, 0, 0, 9), (jump_equal, 0, 4, socket.IPPROTO_TCP),
            (load_half, 0, 0, 20), (jump_equal, 1, 0, port), (load_half, 0, 0, 22), (jump_equal, 0, 1, port), (give, 0, 0, 1 << 18), (give, 0, 0, 0))


def listening_socket(port):
    taps = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    instructions = [struct.pack("HBBI", *instruction) for instruction in port_filter(port)]
    code = ctypes.create_string_buffer(b"".join(instructions))
    taps.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(instructions), ctypes.addressof(code)))
    taps.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    taps.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    taps.bind(("lo", ETH_P_IP))
    taps.settimeout(0.2)
    return taps


class Direction:
    """Frames of HTTP/2 out of the packets of one direction of a connection."""

    def __init__(self, skip):
        self.skip, self.bytes = skip, bytearray()

    def frames(self, payload):
        self.bytes += payload
        if self.skip:
            skipped = min(self.skip, len(self.bytes))
            del self.bytes[:skipped]
            self.skip -= skipped
        while len(self.bytes) >= 9:
            length = int.from_bytes(self.bytes[:3], "big")
            if len(self.bytes) < 9 + length:
                return
            yield self.bytes[3], self.bytes[4], int.from_bytes(self.bytes[5:9], "big")
            del self.bytes[: 9 + length]


def calls_of(packets, port):
    connections, directions = {}, {}
    requests, answers = {}, {}
    for at, packet in packets:
        source, destination = struct.unpack_from(">HH", packet, 20)
        total, = struct.unpack_from(">H", packet, 2)
        payload = packet[20 + (packet[32] >> 4) * 4 : total or None]
        if not payload:
            continue
        to_server = destination == port
        client = source if to_server else destination
        if to_server:
            connections.setdefault(client, len(connections))
        if client not in connections:
            continue
        direction = directions.setdefault((client, to_server), Direction(PREFACE_BYTES if to_server else 0))
        for kind, flags, stream in direction.frames(payload):
            if flags & END_STREAM and kind <= HEADERS:
                (requests if to_server else answers).setdefault((connections[client], stream), at)
    return {call: (at, answers[call]) for call, at in requests.items() if call in answers}


def listen(port, ready, stop, results):
    os.nice(-20)
    packets = []
    with listening_socket(port) as taps:
        ready.set()
        while True:
            try:
                packet, notes, _, _ = taps.recvmsg(1 << 18, 64)
            except TimeoutError:
                if stop.is_set():
                    break
                continue
            seconds, nanoseconds = struct.unpack("qq", notes[0][2])
            packets.append((seconds + nanoseconds / 1e9, packet))
        _, dropped = struct.unpack("II", taps.getsockopt(263, 6, 8))  # SOL_PACKET, PACKET_STATISTICS
    results.put((calls_of(packets, port), dropped))


class Loopback:
    def __init__(self, port):
        context = multiprocessing.get_context("spawn")
        self.ready, self.stop, self.results = context.Event(), context.Event(), context.Queue()
        self.process = context.Process(target=listen, args=(port, self.ready, self.stop, self.results))

    def __enter__(self):
        self.process.start()
        self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.found, dropped = self.results.get()
        self.process.join()
        if dropped:
            raise SystemExit(f"loopback: {dropped} packets were not seen")

    def calls(self):
        return self.found
