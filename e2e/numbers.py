"""Measures the dashboard in a real browser, and prints what it found.

    cargo xtask numbers     5,000 partitions, 64 workers, all of them changing 10 times a second

A real `parti serve` shows a group that a writer in this process changes in the store. The browser's
own trace tells of every task of the page's main thread: from the opening of the page on, and then
while everything changes. Fails if a number is worse than promised.
"""

import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from browser import FLAGS
from scene import Served, chromium, until

PARTITIONS, WORKERS, EVERY = 5_000, 64, 0.1
LENGTH = float(os.environ.get("LENGTH", 20))

# What is promised (docs/serve.md).
FIRST_PAINT_MS, TRANSFERRED, TASK_MS = 1_000, 300_000, 50

NONCE = "0000000000000001"


class Writer(threading.Thread):
    """A group that is busy: every partition moves on, ten times a second."""

    def __init__(self, file):
        super().__init__(daemon=True)
        self.db = sqlite3.connect(file, check_same_thread=False, timeout=60, isolation_level=None)
        self.enough, self.rounds, self.late, self.took = threading.Event(), 0, 0, 0.0
        self.revision = 0

    def put(self, records):
        rows = []
        for key, value in records:
            self.revision += 1
            rows.append((key, self.revision, value.encode()))
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", rows)
        self.db.execute("UPDATE counter SET revision = ?", (self.revision,))
        self.db.execute("COMMIT")

    def begin(self):
        (self.revision,) = self.db.execute("SELECT revision FROM counter").fetchone()
        now = int(time.time() * 1000)
        leader = {"v": 1, "worker": "worker-0", "incarnation": 1, "term": 1, "beat": 1,
                  "nonce": NONCE}
        identity = {"v": 1, "store": NONCE, "stream": NONCE, "coordination": "leader",
                    "nonce": NONCE}
        plan = {"v": 1, "version": 1, "term": 1, "lifecycle": "stable", "state": "stable",
                "reason": "first plan", "started_at": now, "workers": WORKERS,
                "partitions": PARTITIONS, "moving": 0, "unserved": [],
                "fingerprint": {"partitions": NONCE, "strategy": "fair_share",
                                "coordination": "leader"}, "nonce": NONCE}
        self.put([(f"{kind}/g", json.dumps(record)) for kind, record in
                  (("group", identity), ("leader", leader), ("plan", plan))])
        self.round()

    def round(self):
        now, done = int(time.time() * 1000), self.rounds * 7
        workers = ((f"workers/g/worker-{number}", (
            f'{{"v":1,"incarnation":1,"beat":{self.rounds + 1},"status":"live","state":4,"term":1,'
            f'"released":0,"applied":1,"ready":{{"version":0,"partitions":[]}},"blocked_by":[],'
            f'"load":78,"degraded":null,"partitions":"{NONCE}","renewed_at":{now},'
            f'"nonce":"{NONCE}"}}')) for number in range(WORKERS))
        partitions = ((f"partitions/g/{number}", (
            f'{{"v":1,"epoch":1,"owner":"worker-{number % WORKERS}","incarnation":1,"start":0,'
            f'"offset":{done},"next_offset":{done + 1},"begun":null,"nonce":"{NONCE}",'
            f'"claimed_at":1,"updated_at":{now}}}')) for number in range(PARTITIONS))
        self.put([*workers, *partitions])
        self.rounds += 1

    def run(self):
        due = time.monotonic()
        while not self.enough.is_set():
            began = time.monotonic()
            self.round()
            self.took = max(self.took, time.monotonic() - began)
            due += EVERY
            self.late += due < time.monotonic()
            self.enough.wait(max(0, due - time.monotonic()))


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
    writer = Writer(served.folder / "group.db")
    writer.begin()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            return look(browser, served, writer)
    finally:
        writer.enough.set()
        served.end()


def look(browser, served, writer):
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    context.add_init_script(f"({COUNT_CHANGES})()")
    page = context.new_page()
    network, files = context.new_cdp_session(page), {}
    network.send("Network.enable")
    paths = {}
    network.on("Network.requestWillBeSent", lambda event: paths.update(
        {event["requestId"]: urlsplit(event["request"]["url"]).path}))
    network.on("Network.loadingFinished", lambda event: files.update(
        {paths.get(event["requestId"]): event["encodedDataLength"]}))
    browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel",
                                                 "disabled-by-default-devtools.timeline"])
    page.goto(f"{served.url}/#/groups/g")
    until("all is shown", lambda: page.evaluate(
        "document.querySelector('#partitions tbody tr[data-at]') !== null"))
    time.sleep(2)
    paint = page.evaluate("performance.getEntriesByType('paint').map((p) => [p.name, p.startTime])")
    writer.start()
    changes = page.evaluate("window.changes")
    rounds, began = writer.rounds, time.monotonic()
    time.sleep(LENGTH)
    rounds, length = writer.rounds - rounds, time.monotonic() - began
    changes = page.evaluate("window.changes") - changes
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    writer.enough.set()
    tasks = main_thread(trace)
    changing = tasks[-1][0] - length * 1000
    assets = {path: size for path, size in files.items() if path and not path.startswith("/v1/")}
    first = dict(paint)["first-contentful-paint"]
    busy = sum(duration for begin, duration, _ in tasks if begin >= changing) / length / 10
    print(f"first paint       {first:.0f} ms")
    print(f"transferred       {sum(assets.values()) / 1000:.1f} KB in {len(assets)} files, besides "
          f"the group itself")
    print(f"written           {rounds / length:.1f} times a second, all {PARTITIONS} partitions of "
          f"{WORKERS} workers ({writer.late} late)")
    print(f"taken in          {changes / length:.1f} changes of all of them a second")
    print(f"opening           {summary([task for task in tasks if task[0] < changing])}")
    print(f"changing          {summary([task for task in tasks if task[0] >= changing])}; "
          f"busy for {busy:.0f} %")
    longest = max(length for _, length, _ in tasks)
    return first <= FIRST_PAINT_MS and sum(assets.values()) <= TRANSFERRED and longest <= TASK_MS


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
