"""Measures the dashboard in a real browser, and prints what it found.

    cargo xtask numbers     5,000 partitions, 64 workers, all of them changing 10 times a second

    store ──▶ parti serve ──▶ Relay ──▶ Chromium ──▶ its own trace
      ▲            │            └─ the live stream: the group, then a change every 100 ms
      └─ Writer    └──▶ what it tells by itself of a group that is written ten times a second

Files and the group come from a real `parti serve`. No real group writes all of its checkpoints so
often, and how often the service tells of them depends on what that costs it, so the page's changes
come from a relay here. How many changes the service tells by itself, with no page that looks, is
measured after that, and only printed.

The trace tells of every task of the page's main thread: from the opening of the page on, and then
while everything changes. Fails if a number is worse than promised. Tasks while everything changes
count by the clock, so this is for a machine that does nothing else. Those of the opening count by
the time of the processor: some of their length the browser itself takes, to start.
"""

import json
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from browser import FLAGS
from scene import PARTITIONS, WORKERS, Served, checkpoint, chromium, group_of, until

EVERY = 0.1
LENGTH = float(os.environ.get("LENGTH", 20))

# What is promised (docs/serve.md).
FIRST_PAINT_MS, TRANSFERRED, TASK_MS = 1_000, 300_000, 50


class Relay(ThreadingHTTPServer):
    """Hands everything through, but for the live stream."""

    daemon_threads = True

    def __init__(self, served):
        super().__init__(("127.0.0.1", 0), Relayed)
        self.served, self.go, self.told, self.late = served, threading.Event(), 0, 0
        status, group = served.call("GET", "/v1/groups/g")
        assert status == 200 and len(group["partitions"]) == PARTITIONS, status
        self.whole = event("group", group | {"events": []})
        lists = ("workers", "handoffs", "partitions", "unreadable")
        head = {name: value for name, value in group.items() if name not in lists}
        dice = random.Random(1)
        # Made beforehand: to make them takes longer than to send them.
        self.changes = []
        for turn in range(1, 21):
            for partition in group["partitions"]:
                done = turn * 50 + dice.randrange(50)
                partition |= {"offset": done, "next_offset": done + 1, "end": done + 100,
                              "lag": dice.randrange(100)}
            for worker in group["workers"]:
                worker["beat"] += 1
            self.changes.append(event("change", {
                "head": head, "workers": group["workers"], "workers_gone": [],
                "partitions": group["partitions"], "partitions_gone": [], "events": []}))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def event(kind, data):
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Relayed(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.endswith("/live"):
            self.live()
            return
        with urllib.request.urlopen(self.server.served.url + self.path) as answer:
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("date", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def live(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            self.wfile.write(self.server.whole)
            self.server.go.wait()
            due = time.monotonic()
            while self.server.go.is_set():
                changes = self.server.changes
                self.wfile.write(changes[self.server.told % len(changes)])
                self.server.told += 1
                due += EVERY
                self.server.late += due < time.monotonic()
                time.sleep(max(0, due - time.monotonic()))
        except ConnectionError:
            pass  # the page was closed


class Writer(threading.Thread):
    """Writes all checkpoints anew every 100 ms, or as often as it can, as workers would."""

    def __init__(self, served):
        super().__init__(daemon=True)
        self.file, self.ended, self.rounds = served.folder / "group.db", threading.Event(), 0

    def run(self):
        with sqlite3.connect(self.file, timeout=60) as db:
            due = time.monotonic()
            while not self.ended.wait(max(0, due - time.monotonic())):
                self.write(db)
                self.rounds += 1
                due = max(due + EVERY, time.monotonic())
        db.close()

    def write(self, db):
        now = int(time.time() * 1000)
        db.execute("BEGIN IMMEDIATE")
        (revision,) = db.execute("SELECT revision FROM counter").fetchone()
        db.execute("UPDATE counter SET revision = revision + ?", (PARTITIONS,))
        db.executemany("UPDATE records SET revision = ?, value = ? WHERE key = ?", (
            (revision + 1 + number,
             json.dumps(checkpoint(number, WORKERS, self.rounds + 2, now)).encode(),
             f"partitions/g/{number}")
            for number in range(PARTITIONS)))
        db.commit()


def processor(served):
    """Seconds of the processor that the service has taken."""
    with open(f"/proc/{served.process.child.pid}/stat") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def partitions_told(stream):
    """How many partitions each change of a live stream tells of."""
    waiting = b""
    while chunk := stream.read1(1 << 20):
        waiting += chunk
        *frames, waiting = waiting.split(b"\n\n")
        yield from (frame.count(b'"partition":') for frame in frames
                    if frame.startswith(b"event: change\n"))


def tell(served):
    """Prints what the service itself tells of a group that is written all the time."""
    writer = Writer(served)
    with urllib.request.urlopen(f"{served.url}/v1/groups/g/live") as stream:
        told = partitions_told(stream)
        writer.start()
        next(told)  # what is measured begins at a change
        began, rounds, cpu, counts = time.monotonic(), writer.rounds, processor(served), []
        while (length := time.monotonic() - began) < LENGTH:
            counts.append(next(told))
        rounds, cpu = writer.rounds - rounds, processor(served) - cpu
        writer.ended.set()
        writer.join()
    each = sum(counts) / PARTITIONS / length
    print(f"the service       tells {len(counts) / length:.1f} changes a second by itself, each of "
          f"{sum(counts) / len(counts):.0f} partitions on average: of each partition {each:.1f} "
          f"times a second, for {cpu / length:.2f} of a core; each is written "
          f"{rounds / length:.1f} times a second")


def main_thread(trace):
    """Every task of the page's main thread: `(begin, length, cpu)`, in milliseconds."""
    names = {(event["pid"], event["tid"]) for event in trace
             if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"}
    tasks = [event for event in trace if event.get("ph") == "X" and event["name"] == "RunTask"
             and (event["pid"], event["tid"]) in names]
    # More than one renderer can be there; ours is the one that works.
    busiest = max({task["pid"] for task in tasks},
                  key=lambda pid: sum(task["dur"] for task in tasks if task["pid"] == pid))
    return sorted((task["ts"] / 1000, task["dur"] / 1000, task.get("tdur", 0) / 1000)
                  for task in tasks if task["pid"] == busiest)


def summary(tasks):
    lengths = sorted(length for _, length, _ in tasks)
    at = lambda share: lengths[min(len(lengths) - 1, int(share * len(lengths)))]
    return (f"{len(lengths)} tasks; p50 {at(.5):.1f} ms, p99 {at(.99):.1f} ms, "
            f"longest {lengths[-1]:.1f} ms (of the processor "
            f"{max(cpu for *_, cpu in tasks):.1f} ms), over {TASK_MS} ms: "
            f"{sum(length > TASK_MS for length in lengths)}")


def measure(folder):
    served = Served(folder)
    try:
        served.write(dict(group_of(PARTITIONS, WORKERS)))
        relay = Relay(served)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            is_good = look(browser, relay)
        tell(served)
        return is_good
    finally:
        served.end()


def look(browser, relay):
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    context.add_init_script(f"({COUNT_CHANGES})()")
    page = context.new_page()
    network, paths, files = context.new_cdp_session(page), {}, {}
    network.send("Network.enable")
    network.on("Network.requestWillBeSent", lambda event: paths.update(
        {event["requestId"]: urlsplit(event["request"]["url"]).path}))
    network.on("Network.loadingFinished", lambda event: files.update(
        {paths.get(event["requestId"]): event["encodedDataLength"]}))
    browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel",
                                                 "disabled-by-default-devtools.timeline"])
    page.goto(f"{relay.url}/#/groups/g")
    until("all is shown", lambda: page.evaluate(
        "document.querySelector('#partitions tbody tr[data-at]') !== null"))
    until("every worker is shown", lambda: page.evaluate(
        "document.querySelectorAll('#workers tbody tr').length") == WORKERS)
    time.sleep(2)
    paint = page.evaluate("performance.getEntriesByType('paint').map((p) => [p.name, p.startTime])")
    changes, told = page.evaluate("window.changes"), relay.told
    relay.go.set()
    began = time.monotonic()
    time.sleep(LENGTH)
    changes, told = page.evaluate("window.changes") - changes, relay.told - told
    length = time.monotonic() - began
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    relay.go.clear()
    tasks = main_thread(trace)
    changing = tasks[-1][0] - length * 1000
    assets = {path: size for path, size in files.items() if path and not path.startswith("/v1/")}
    first = dict(paint)["first-contentful-paint"]
    busy = sum(duration for begin, duration, _ in tasks if begin >= changing) / length / 10
    print(f"first paint       {first:.0f} ms")
    print(f"transferred       {sum(assets.values()) / 1000:.1f} KB in {len(assets)} files, besides "
          f"the group itself ({len(relay.whole) / 1000:.0f} KB)")
    print(f"changes           {told / length:.1f} a second sent by the relay, {changes / length:.1f} taken in, "
          f"each of all {PARTITIONS} partitions and {WORKERS} workers "
          f"({len(relay.changes[0]) / 1000:.0f} KB)")
    print(f"opening           {summary([task for task in tasks if task[0] < changing])}")
    print(f"changing          {summary([task for task in tasks if task[0] >= changing])}; "
          f"busy for {busy:.0f} %")
    opening = max(cpu for begin, _, cpu in tasks if begin < changing)
    longest = max(duration for begin, duration, _ in tasks if begin >= changing)
    return (first <= FIRST_PAINT_MS and sum(assets.values()) <= TRANSFERRED
            and max(opening, longest) <= TASK_MS and changes / length > 9)


# Runs in the page before its own scripts: counts the changes that it takes in.
COUNT_CHANGES = """() => {
    const { parse } = JSON;
    window.changes = 0;
    JSON.parse = (text, ...rest) => {
        if (text.length > 100_000) window.changes += 1;
        return parse(text, ...rest);
    };
}"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="parti-numbers-") as folder:
        sys.exit(0 if measure(folder) else 1)
