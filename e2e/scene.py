"""Programs under test, and patience.

    PARTI     the program `parti`        (cargo xtask test sets it)
    CHROMIUM  a Chromium; by default the system's
    PATIENCE  seconds to wait for what does not come; by default many

Nothing here sleeps for a result: everything waits for what it wants to see, for long if need be.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

# What does not come within this time never will. A guard: nothing is measured against it.
PATIENCE = float(os.environ.get("PATIENCE", 180))

ROOT = Path(__file__).resolve().parent.parent


def parti():
    """Where the program is."""
    found = os.environ.get("PARTI") or str(ROOT / "target/release/parti")
    if not Path(found).is_file():
        raise SystemExit(f"there is no program {found}: build it, or name it with PARTI=")
    return str(Path(found).resolve())  # it is started in folders of its own


def chromium():
    """Where the browser is."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise SystemExit("there is no Chromium: install it, or name it with CHROMIUM=")
    return found


def until(what, wanted, patience=PATIENCE):
    """Looks again and again; gives the first answer that is something."""
    deadline = time.monotonic() + patience
    while True:
        found = wanted()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.05)


class Process:
    """A program that runs, and the lines that it says."""

    def __init__(self, *command, env=None, cwd=None):
        self.command = [str(word) for word in command]
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=cwd, env={**os.environ, **(env or {})},
        )
        self.out, self.err = [], []
        self._readers = [
            threading.Thread(target=self._read, args=pipe, daemon=True)
            for pipe in ((self.child.stdout, self.out), (self.child.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe, lines):
        for line in pipe:
            lines.append(line.rstrip("\n"))

    def says(self, pattern):
        """Waits until a line of stderr is like this."""
        def look():
            for line in list(self.err):
                if found := re.search(pattern, line):
                    return found
            if self.child.poll() is not None:
                raise AssertionError(f"{self.command} ended: {self.err}")
            return None
        return until(f"{self.command} says {pattern}", look)

    def events(self, kind=None):
        """The lines of JSON on stdout; a process that was killed may leave half of one."""
        found = []
        for line in list(self.out):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if kind is None or event.get("event") == kind:
                found.append(event)
        return found

    def signal(self, which):
        self.child.send_signal(which)

    def wait(self):
        code = self.child.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        self.child.stdout.close()
        self.child.stderr.close()
        return code

    def kill(self):
        self.child.kill()
        return self.wait()

    def end(self):
        """Asks it to end; kills it if it does not."""
        if self.child.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.wait()


class Served:
    """`parti serve` in a folder of its own, with a SQLite file and a log."""

    def __init__(self, folder, token=None, config=None, read_token=None, listen="127.0.0.1:0"):
        self.folder = Path(folder)
        self.token = token
        command = [parti(), "serve", "--store", "sqlite:group.db", "--source", "log:log",
                   "--listen", listen]
        if config:
            (self.folder / "serve.yaml").write_text(config)
            command += ["--config", "serve.yaml"]
        env = {"PARTI_TOKEN": token or "", "PARTI_READ_TOKEN": read_token or ""}
        self.process = Process(*command, cwd=folder, env=env)
        self.url = self.process.says(r"serving (http://\S+)")[1]

    def call(self, method, path, body=None, token=None):
        """A request; its status, and its JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if token or self.token:
            headers["authorization"] = f"Bearer {token or self.token}"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def make_group(self, group, topic, partitions):
        status, made = self.call("POST", "/v1/groups",
                                 {"group": group, "topic": topic, "partitions": partitions})
        assert status == 201, made

    def write(self, records):
        """Writes records into the store, as a member of the group would: `{key: value}`."""
        with sqlite3.connect(self.folder / "group.db", timeout=60) as db:
            for key, value in records.items():
                db.execute("UPDATE counter SET revision = revision + 1")
                (revision,) = db.execute("SELECT revision FROM counter").fetchone()
                row = (key, revision, json.dumps(value).encode())
                db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
        db.close()

    def end(self):
        return self.process.end()


# A large group.
PARTITIONS, WORKERS = 5_000, 64
NONCE = "0000000000000001"


def group_of(partitions, workers):
    """The records of a group in which everything is served."""
    now = int(time.time() * 1000)
    yield "group/g", {"v": 1, "store": NONCE, "stream": NONCE, "coordination": "leader",
                      "nonce": NONCE}
    yield "leader/g", {"v": 1, "worker": "worker-0", "incarnation": 1, "term": 1, "beat": 1,
                       "nonce": NONCE}
    for number in range(workers):
        yield f"workers/g/worker-{number}", {
            "v": 1, "incarnation": 1, "beat": 1, "status": "live", "state": 4, "term": 1,
            "released": 0, "applied": 1, "ready": {"version": 0, "partitions": []},
            "blocked_by": [], "load": 78, "degraded": None, "partitions": NONCE,
            "renewed_at": now, "nonce": NONCE}
    for number in range(partitions):
        yield f"partitions/g/{number}", checkpoint(number, workers, 1, now)


def checkpoint(number, workers, offset, now):
    """The record of a partition of such a group."""
    return {"v": 1, "epoch": 1, "owner": f"worker-{number % workers}", "incarnation": 1,
            "start": 0, "offset": offset, "next_offset": offset + 1, "begun": None,
            "nonce": NONCE, "claimed_at": now, "updated_at": now}


def foreign(name):
    """A name that no key makes, as a part of a key (`parti_core::codec::segment`)."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    escaped = (chr(byte) if byte in plain else f"={byte:02X}" for byte in name.encode())
    return "=-" + "".join(escaped)


class Case(unittest.TestCase):
    """A test with a folder; what it started is ended after it."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="parti-e2e-"))

    def start(self, *command, **how):
        process = Process(*command, **how)
        self.addCleanup(process.end)
        return process

    def serve(self, **how):
        served = Served(self.folder, **how)
        self.addCleanup(served.end)
        return served
