#!/usr/bin/env python3
"""A web server for the tests of clients: web_server.py PORT [CERTIFICATE KEY].

It serves HTTP/1.1 on 127.0.0.1, with TLS if there is a certificate, and keeps connections. It answers

    /wait/S     after S seconds, with the number S
    /bytes/N    with N bytes
    /half/N     with half of N bytes, and then it closes the connection
    /reset      with a reset of the connection
    POST        with the body
    all else    with 404
"""

import asyncio
import re
import socket
import ssl
import struct
import sys


async def answer(method, path, body, writer):
    """Returns a status and a body, or None if the connection is to end."""
    if method == "POST":
        return 200, body
    if m := re.fullmatch(r"/wait/([\d.]+)", path):
        await asyncio.sleep(float(m[1]))
        return 200, m[1].encode()
    if m := re.fullmatch(r"/bytes/(\d+)", path):
        return 200, b"x" * int(m[1])
    if m := re.fullmatch(r"/half/(\d+)", path):
        n = int(m[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + b"x" * (n // 2))
        await writer.drain()
        return None
    if path == "/reset":
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return None
    return 404, b"nothing here"


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            method, path, _ = line.decode().split()
            length = 0
            while (field := (await reader.readline()).strip().lower()):
                if field.startswith(b"content-length:"):
                    length = int(field.partition(b":")[2])
                if field == b"expect: 100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            result = await answer(method, path, await reader.readexactly(length), writer)
            if result is None:
                break
            status, body = result
            writer.write(b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n"
                         % (status, b"OK" if status == 200 else b"Not Found", len(body)) + body)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client has gone
    writer.close()


async def main():
    tls = None
    if len(sys.argv) > 2:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[2], sys.argv[3])
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), ssl=tls, backlog=4096, limit=1 << 24)
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
