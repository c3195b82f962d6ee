"""The servers of W19: Redis and PostgreSQL on loopback, with data of their own, for as long as the measurement lasts."""

import contextlib
import glob
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

TIMEOUT_S = 60  # for the start of a server
CLIENTS = 1100  # at least as many connections as W19 makes


def programs():
    """The paths of redis-server, initdb and postgres, or None if one is missing."""
    paths = [shutil.which("redis-server")]
    for name in ("initdb", "postgres"):
        paths.append(max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=shutil.which(name)))
    return paths if all(paths) else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def as_user(command):
    """PostgreSQL refuses to run as root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command] if os.geteuid() == 0 else command


def wait_for(answers, server):
    end = time.monotonic() + TIMEOUT_S
    while not answers():
        if server.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"bench: {server.args[0]} does not start")
        time.sleep(0.05)


def redis_answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
            s.sendall(b"SET key 0123456789abcdef\r\n")
            return s.recv(100).startswith(b"+OK")
    except OSError:
        return False


@contextlib.contextmanager
def running():
    """Starts both servers. Their addresses are in BENCH_REDIS (a port) and BENCH_POSTGRES (a libpq string)."""
    redis, initdb, postgres = programs()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o777)  # the user of PostgreSQL makes its data here
        data = pathlib.Path(folder) / "data"
        subprocess.run(as_user([initdb, "-D", data, "-N", "-U", "postgres", "-A", "trust"]), check=True, cwd=folder, **quiet)
        ports = [free_port(), free_port()]

        def start(command):
            server = subprocess.Popen(command, cwd=folder, **quiet)
            stack.callback(server.wait)
            stack.callback(server.terminate)
            return server

        server = start([redis, "--port", str(ports[0]), "--bind", "127.0.0.1", "--save", "", "--maxclients", "4000"])
        wait_for(lambda: redis_answers(ports[0]), server)
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", f"max_connections={CLIENTS}", "fsync=off"]
        options = [word for setting in settings for word in ("-c", setting)]
        server = start(as_user([postgres, "-D", data, "-p", str(ports[1]), *options]))
        # The file's last line says so when the server takes connections.
        wait_for(lambda: (data / "postmaster.pid").exists()
                 and (data / "postmaster.pid").read_text().rstrip().endswith("ready"), server)
        os.environ["BENCH_REDIS"] = str(ports[0])
        os.environ["BENCH_POSTGRES"] = f"host=127.0.0.1 port={ports[1]} user=postgres dbname=postgres"
        yield
