"""Consumers in Python beside workers in Rust, in one group, as processes that are killed."""

import sys
import threading
import unittest
from collections import defaultdict

from scene import ROOT, Case, Process, parti, until

# Short times, but a TTL that a busy machine keeps.
CONFIG = """
heartbeat_interval: 500ms
heartbeat_ttl: 5s
worker_id_ttl: 6s
planned_scale_window: 300ms
settle_time: 200ms
checkpoint_flush_interval: 200ms
strategy: fair_share
assignment: { rebalance_cooldown: 0s }
processing: { start: earliest }
"""

PARTITIONS = [str(number) for number in range(8)]


class Producer(threading.Thread):
    """Appends to every partition until it is told to stop."""

    def __init__(self, served):
        super().__init__(daemon=True)
        self.served, self.enough, self.failed = served, threading.Event(), None
        self.ends = dict.fromkeys(PARTITIONS, 0)

    def run(self):
        try:
            while not self.enough.wait(0.05):
                messages = [{"partition": one, "payload": "m"} for one in PARTITIONS]
                status, told = self.served.call(
                    "POST", "/v1/topics/t/messages", {"messages": messages})
                assert status == 200, told
                for place in told["placed"]:
                    self.ends[place["partition"]] = place["offset"] + 1
        except Exception as error:  # told by `stop`
            self.failed = error

    def stop(self):
        self.enough.set()
        self.join()
        if self.failed:
            raise self.failed


class OneGroup(Case):
    def setUp(self):
        super().setUp()
        self.served = self.serve(config=CONFIG)
        self.served.make_group("g", "t", len(PARTITIONS))
        self.everybody = []

    def join(self, *command):
        process = Process(*command, cwd=self.folder)
        self.addCleanup(process.end)
        self.everybody.append(process)
        return process

    def rust(self):
        return self.join(parti(), "consume", "--store", "sqlite:group.db", "--source", "log:log",
                         "--group", "g", "--topic", "t", "--config", "serve.yaml", "-o", "jsonl")

    def python(self):
        return self.join(sys.executable, ROOT / "clients/python/example.py", self.served.url,
                         "g", "t")

    def group(self):
        status, group = self.served.call("GET", "/v1/groups/g")
        assert status == 200, group
        return group

    def shares(self):
        """How many partitions each worker has."""
        shares = defaultdict(int)
        for partition in self.group()["partitions"]:
            if partition["owner"] is not None:
                shares[partition["owner"]] += 1
        return sorted(shares.values())

    def spread(self, *wanted):
        until(f"spread {wanted}", lambda: self.shares() == sorted(wanted))

    def progress(self, of, more=20):
        """Waits until somebody has handled some more messages."""
        before = len(of.events("message"))
        until("progress", lambda: len(of.events("message")) >= before + more)

    def test_a_kill_of_either_loses_nothing(self):
        producer = Producer(self.served)
        producer.start()
        self.addCleanup(producer.enough.set)
        rust = self.rust()
        self.spread(8)
        python = self.python()
        self.spread(4, 4)
        self.progress(rust)
        self.progress(python)

        python.kill()
        self.spread(8)
        self.progress(rust)

        second = self.python()
        self.spread(4, 4)
        self.progress(second)
        rust.kill()
        self.spread(8)
        self.progress(second)

        last = self.rust()
        self.spread(4, 4)
        self.progress(last)
        producer.stop()
        until("everything is committed", lambda: all(
            one["next_offset"] == producer.ends[one["partition"]]
            for one in self.group()["partitions"]))
        for member in (second, last):
            member.end()

        handled = defaultdict(list)
        for place, member in enumerate(self.everybody):
            for order, message in enumerate(member.events("message")):
                handled[message["partition"]].append((message["epoch"], place, order, message))
        for partition, end in producer.ends.items():
            self.assertGreater(end, 20)
            # Epochs order owners, and an owner tells its messages in order.
            offsets = [message["offset"] for *_, message in sorted(
                handled[partition], key=lambda entry: entry[:3])]
            self.assertEqual(sorted(set(offsets)), list(range(end)), f"{partition}: none is lost")
            first = list(dict.fromkeys(offsets))
            self.assertEqual(first, sorted(first), f"{partition}: none is out of order")


if __name__ == "__main__":
    unittest.main(verbosity=2)
