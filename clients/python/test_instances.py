"""The client with instances of a service that a test plays: python3 -m unittest test_instances"""

import http.server
import json
import select
import threading
import unittest
import urllib.parse

import parti

PATIENCE = 60  # seconds: what does not come by then never will


class Instance(http.server.ThreadingHTTPServer):
    """One of them. `streams` are told one after the other: a list of events (or what makes it),
    after which the stream stays open until `cut`; or the status that is answered instead."""

    daemon_threads = True

    def __init__(self, case, log):
        super().__init__(("127.0.0.1", 0), Asked)
        self.log, self.streams, self.asked = log, [], []
        self.answers = {}  # (status, body) for what a path ends with, or what makes them
        self.closes = False  # whether it ends a connection after each answer, without saying so
        self._open = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        serving = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        case.addCleanup(serving.join)
        case.addCleanup(self.server_close)
        case.addCleanup(self.shutdown)
        case.addCleanup(self.cut)

    def handle_error(self, request, client_address):
        pass  # who asked is gone

    def opened(self):
        cut = threading.Event()
        self._open.append(cut)
        return cut

    def cut(self):
        """Ends the streams that are open."""
        for cut in self._open:
            cut.set()

    def usual(self, what, query, body):
        if what == "sessions":
            return {"session": "s", "token": "t", "worker": "w", "topic": "t",
                    "ttl_ms": 600_000}  # nothing ends a stream but the test
        if what == "heartbeat":
            return {"lease_ms": 600_000}
        if what == "messages":
            return self.log.read(int(query["from"][0]))
        if what == "commits":
            return {"results": [{"result": "ok"} for _ in body["commits"]]}
        return {"result": "ok"}


class Asked(http.server.BaseHTTPRequestHandler):
    """A connection to it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        what = url.path.rsplit("/", 1)[1]
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        self.server.asked.append((self.command, what))
        if what == "events":
            return self.listen(self.server.streams.pop(0) if self.server.streams else 503)
        answer = self.server.answers.get(what)
        if callable(answer):
            answer = answer(body)
        if answer is None:
            answer = 200, self.server.usual(what, urllib.parse.parse_qs(url.query), body)
        self.answer(*answer)
        self.close_connection |= self.server.closes

    do_POST = do_DELETE = do_GET

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def listen(self, events):
        if isinstance(events, int):
            return self.answer(events, {})
        events = events() if callable(events) else events
        self.close_connection = True
        cut = self.server.opened()
        self.send_response(200)
        self.end_headers()
        for event, data in events:
            self.wfile.write(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())
        cut.wait()


class Log:
    """The messages of one partition, as far as they are there."""

    def __init__(self):
        self.end, self.changed = 0, threading.Condition()

    def grow(self, end):
        with self.changed:
            self.end = end
            self.changed.notify_all()

    def read(self, start):
        with self.changed:
            self.changed.wait_for(lambda: self.end > start, timeout=5)
            found = [{"offset": start, "headers": [], "timestamp_ms": 0}][:self.end - start]
        return {"messages": found, "next": start + len(found)}


def held(epoch):
    """How a stream begins whose session has the partition."""
    return [("session", {"held": [{"partition": "0", "epoch": epoch}], "topic": "t"}),
            ("assigned", {"partition": "0", "epoch": epoch, "next_offset": 0})]


class Instances(unittest.TestCase):
    def setUp(self):
        self.log = Log()
        self.a, self.b = Instance(self, self.log), Instance(self, self.log)

    def consumer(self, *instances):
        consumer = parti.Consumer(",".join(one.url for one in instances), "g", "t")
        ends = threading.Timer(PATIENCE, lambda: setattr(consumer, "_closed", True))
        ends.start()
        self.addCleanup(ends.cancel)
        return consumer

    def growing(self, end, events):
        def opened():
            self.log.grow(end)
            return events
        return opened

    def test_an_instance_that_the_session_has_left_is_not_believed(self):
        self.a.streams = [held(1), 503, held(1), 503]
        self.b.streams = [self.growing(4, held(2)), 503, self.growing(5, held(2))]
        self.log.grow(3)
        handled = []
        with self.consumer(self.a, self.b) as consumer:
            for message in consumer:
                handled.append((message.offset, message.epoch))
                if len(handled) == 3:
                    self.a.cut()  # goes on at the other
                elif len(handled) == 4:
                    self.b.cut()  # and back, where nobody has noticed that it was away
                elif len(handled) == 5:
                    break
        self.assertEqual(handled, [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)])

    def test_what_may_be_stored_is_not_sent_again(self):
        stored = []

        def killed(body):
            stored.append(body["messages"][0]["payload"])
            if len(stored) == 2:
                raise ConnectionAbortedError("after it was stored, and before it was answered")
            return 200, {"placed": []}

        for one in (self.a, self.b):
            one.answers["messages"] = killed
        client = parti.Client(f"{self.a.url},{self.b.url}")
        self.addCleanup(client._disconnect)
        client.produce("t", [{"payload": "one"}])
        with self.assertRaisesRegex(ConnectionError, "stored is not known"):
            client.produce("t", [{"payload": "two"}])
        self.assertEqual(stored, ["one", "two"])
        client.produce("t", [{"payload": "three"}])

    def test_a_connection_that_was_seen_closed_is_made_anew(self):
        self.a.answers["messages"] = lambda _: (200, {"placed": []})
        self.a.closes = True
        client = parti.Client(self.a.url)
        self.addCleanup(client._disconnect)
        for _ in range(3):
            client.produce("t", [{"payload": "one"}])
            _, connection = client._own.connection
            select.select([connection.sock], [], [], PATIENCE)
        self.assertEqual(self.a.asked, [("POST", "messages")] * 3)


if __name__ == "__main__":
    unittest.main()
