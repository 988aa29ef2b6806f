"""A crowd, and clients that never read, never speak or speak nonsense: others go on."""

import json
import random
import re
import resource
import selectors
import socket
import sys
import time
import unittest
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from scene import PATIENCE, ROOT, Case, until

CROWD = 10_000
# What `parti serve` allows (docs/serve.md).
LIVE_STREAMS = 256
CONNECTIONS = 4_096

LIVE = b"GET /v1/groups/g/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
ABOUT = b"GET /v1/about HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def allow_files(wanted):
    """As many open files as are allowed, up to these; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + 500 if hard == resource.RLIM_INFINITY else min(wanted + 500, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return min(wanted, max(soft, most) - 500)


def heard(connection):
    """The status of the answer that comes; nothing if there is none."""
    try:
        head = connection.recv(64)
    except ConnectionError:
        return None
    return int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else None


class Crowd(Case):
    def setUp(self):
        super().setUp()
        self.served = self.serve(config="""
            heartbeat_interval: 1s
            heartbeat_ttl: 6s
            worker_id_ttl: 7s
            planned_scale_window: 300ms
            settle_time: 200ms
            strategy: fair_share
            assignment: { rebalance_cooldown: 0s }
            processing: { start: earliest }
            """)
        self.served.make_group("g", "t", 4)
        where = urlsplit(self.served.url)
        self.address = (where.hostname, where.port)

    def connect(self, window=None):
        """A connection; with a small window it takes next to nothing by itself."""
        connection = socket.socket()
        self.addCleanup(connection.close)
        if window:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        connection.settimeout(PATIENCE)
        connection.connect(self.address)
        return connection

    def say(self, words):
        """A connection on which this was said."""
        connection = self.connect()
        try:
            connection.sendall(words)
        except ConnectionError:
            pass  # hung up on already: what it was told can still be read
        return connection

    def status(self, words):
        """What is answered to these bytes: a status, or nothing."""
        with self.say(words) as connection:
            return heard(connection)

    def consumer(self):
        """A well-behaved one, in a process of its own."""
        example = ROOT / "clients/python/example.py"
        consumer = self.start(sys.executable, example, self.served.url, "g", "t")
        until("all is assigned", lambda: len(consumer.events("assigned")) >= 4)
        return consumer

    def ask(self, *request):
        """A request that is made again while there is no room for it."""
        def answer():
            status, told = self.served.call(*request)
            self.assertIn(status, (200, 503), told)
            return told if status == 200 else None
        return until(request, answer)

    def produce(self, count):
        messages = [{"partition": str(one % 4), "payload": "m"} for one in range(count)]
        self.ask("POST", "/v1/topics/t/messages", {"messages": messages})

    def assert_undisturbed(self, consumer, wanted):
        """It was told nothing but its messages, and has them all, each once."""
        until(f"{wanted} messages", lambda: len(consumer.events("message")) >= wanted)
        places = [(one["partition"], one["offset"]) for one in consumer.events("message")]
        self.assertEqual(len(places), len(set(places)), "none came twice")
        self.assertEqual(len(consumer.events("assigned")), 4, "it kept what it had")
        self.assertEqual(consumer.events("lost") + consumer.events("revoke"), [])
        until("everything is committed", lambda: sum(
            one["next_offset"] for one in self.ask("GET", "/v1/groups/g")["partitions"]
        ) == wanted)

    def test_ten_thousand_streams(self):
        crowd = allow_files(CROWD)
        if crowd < CROWD:
            print(f"only {crowd} files may be open here", file=sys.stderr)
        self.assertGreater(crowd, CONNECTIONS, "raise the limit on open files: ulimit -n")
        consumer = self.consumer()
        self.produce(40)
        answers, waiting, told = Counter(), selectors.DefaultSelector(), 0
        self.addCleanup(waiting.close)

        def listen(timeout):
            for key, _ in waiting.select(timeout):
                waiting.unregister(key.fileobj)
                answers[heard(key.fileobj)] += 1

        for number in range(crowd):
            waiting.register(self.say(LIVE), selectors.EVENT_READ)
            listen(0)
            if number % 1000 == 999:
                # In the midst of it, whoever is there already goes on.
                told += 1
                self.produce(40)
        until("an answer for everybody", lambda: listen(1) or not waiting.get_map())
        print(f"{crowd} streams: {dict(answers)}", file=sys.stderr)
        self.assertEqual(answers[200], LIVE_STREAMS, "as many as are allowed, and no more")
        self.assertEqual(answers[429] + answers[503], crowd - LIVE_STREAMS, "others are told why")
        # Whoever was refused made room: newcomers are served while all streams are taken.
        self.assertEqual(self.status(LIVE), 429)
        self.assertEqual(self.status(ABOUT), 200)
        self.assert_undisturbed(consumer, 40 + told * 40)

    def test_a_full_house_says_so_and_recovers(self):
        allow_files(CROWD)
        consumer = self.consumer()
        # Silent ones: they take a place and want nothing. Those who come then are told so.
        silent = [self.connect() for _ in range(CONNECTIONS)]
        until("a refusal", lambda: self.status(ABOUT) == 503)
        # Nobody keeps a place for long without a word, though none of them hangs up.
        until("room again", lambda: self.status(ABOUT) == 200)
        self.assertEqual({connection.fileno() for connection in silent} & {-1}, set())
        self.produce(40)
        self.assert_undisturbed(consumer, 40)

    def test_who_never_reads_is_let_go(self):
        # A group so large that nobody's buffers can hold it.
        now = int(time.time() * 1000)
        record = {"v": 1, "epoch": 1, "owner": None, "incarnation": None, "start": 0,
                  "offset": None, "next_offset": 0, "begun": None, "nonce": "0000000000000001",
                  "claimed_at": now, "updated_at": now}
        self.served.write({f"partitions/big/p{number}": record for number in range(3_000)}
                          | {"group/big": json.loads(BIG)})
        consumer = self.consumer()
        words = LIVE.replace(b"/g/", b"/big/")
        deaf = [self.connect(window=4096) for _ in range(LIVE_STREAMS)]
        for connection in deaf:
            connection.sendall(words)
        # The head of the answer, and nothing after that.
        self.assertEqual({heard(connection) for connection in deaf}, {200})
        self.assertEqual(self.status(LIVE), 429, "all streams are taken")
        self.produce(40)
        # They are let go, though none of them hangs up: others get their places.
        until("a stream is free again", lambda: self.status(LIVE) == 200)
        self.assert_undisturbed(consumer, 40)

    def memory(self):
        """The most memory that the service ever had, in MB."""
        status = Path(f"/proc/{self.served.process.child.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024

    def test_who_never_reads_its_messages_takes_little_memory(self):
        allow_files(CROWD)
        consumer = self.consumer()
        self.served.make_group("large", "large", 1)
        payload = "x" * 900_000
        for _ in range(12):
            self.ask("POST", "/v1/topics/large/messages", {"messages": [{"payload": payload}]})
        before = self.memory()
        words = (b"GET /v1/topics/large/partitions/0/messages?limit=1000 HTTP/1.1\r\n"
                 b"host: localhost\r\n\r\n")
        # Each could have all of it: 11 MB, of which the system's buffers take the least part.
        deaf = [self.connect(window=4096) for _ in range(200)]
        for connection in deaf:
            connection.sendall(words)
        self.assertEqual({heard(connection) for connection in deaf} - {200, 503}, set())
        grew = self.memory() - before
        print(f"200 deaf readers: {grew:.0f} MB more at the most", file=sys.stderr)
        self.assertLess(grew, 200, "64 MiB of answers, and what is read for some of them")
        self.produce(40)
        self.assert_undisturbed(consumer, 40)

    def test_nonsense(self):
        consumer = self.consumer()
        self.produce(40)
        dice = random.Random(7)
        verbs = [b"GET /v1/about HTTP/1.1\r\n", b"POST /v1/groups HTTP/1.1\r\n", LIVE,
                 b"\x16\x03\x01"]
        for _ in range(300):
            noise = dice.randbytes(dice.randrange(1, 3000))
            words = dice.choice(verbs)[:dice.randrange(40)] + noise + b"\r\n\r\n"
            self.assertIn(self.status(words), (None, 400, 404, 405, 414, 421, 431), words)
        # Bodies that lie about their length, that never come, that nest without end.
        lies = [
            b"content-length: 99999999999999999999\r\n\r\n",
            b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
            b"content-length: -1\r\n\r\n",
            b"transfer-encoding: chunked\r\n\r\nzz\r\n",
            b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
            b"content-length: 100000\r\n\r\n" + b"[" * 100_000,
            b"content-length: 99999999\r\n\r\n",
        ]
        head = b"POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        # All at once: some are given time to come to an end.
        told = [(lie, self.say(head + lie)) for lie in lies]
        for lie, connection in told:
            self.assertIn(heard(connection), (None, 400, 408, 413, 431), lie)
        self.assertEqual(self.status(ABOUT), 200)
        self.assert_undisturbed(consumer, 40)


# The identity of a group that nobody works in.
BIG = """{"v": 1, "store": "0000000000000001", "stream": "0000000000000001",
          "coordination": "leader", "nonce": "0000000000000001"}"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
