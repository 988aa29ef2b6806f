"""What the client does by itself, without a service: python3 -m unittest test_parti"""

import io
import socket
import threading
import unittest
from unittest import mock

import parti


# JSON, and no answer of the service.
FOREIGN = (b"[]", b"{}", b"null", b'"x"', b'{"error": "Bad Gateway"}', b'{"error": null}',
           b'{"error": {"message": 5, "code": []}}', b'{"messages": {}, "next": 1}',
           b'{"messages": []}', b"[" * 100_000)


class Clock:
    """A time that passes only while somebody waits: stands for `time` and for a condition."""

    def __init__(self, ends):
        self.now, self.ends, self.at_end = 1000.0, 1000.0 + ends, lambda: None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.wait(seconds)

    def wait(self, seconds):
        self.now += seconds
        if self.now >= self.ends:
            self.at_end()

    def notify_all(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Handled(unittest.TestCase):
    """A consumer that has handled something, and calls what a test gives it."""

    def consumer(self, clock, call, url="http://127.0.0.1:1"):
        consumer = parti.Consumer(url, "g", "t", on_event=lambda *told: self.told.append(told))
        consumer._changed, consumer._call = clock, call
        consumer._session, consumer._lease = {"ttl_ms": 6000, "path": ""}, (1000.0, 1e9)
        held = parti.consumer.Held("0", 1, 0)
        held.done = 4
        consumer._held = {"0": held}
        clock.at_end = lambda: setattr(consumer, "_closed", True)
        return consumer

    def setUp(self):
        self.told = []


class Commits(Handled):
    def test_what_is_refused_at_once_is_asked_again_with_growing_pauses(self):
        clock, asked = Clock(ends=60), []

        def call(*_, **__):
            asked.append(clock.now)
            if len(asked) > 100:
                consumer._closed = True
            raise parti.PartiError(503, "store_refuses", "full", "make room")

        with mock.patch.object(parti.consumer, "time", clock):
            consumer = self.consumer(clock, call)
            self.assertEqual(list(consumer), [])
        self.assertTrue(5 <= len(asked) <= 30, f"{len(asked)} requests in a minute")
        self.assertEqual({event for event, _ in self.told}, {"trouble"})
        pauses = [b - a for a, b in zip(asked, asked[1:])]
        self.assertLess(pauses[0], 1.5)
        self.assertLess(max(pauses), 7)

    def test_what_is_refused_for_good_is_told_once_and_goes_on_with_what_is_done_next(self):
        clock, asked = Clock(ends=60), []

        def call(*_, **__):
            asked.append(consumer._held["0"].done)
            if len(asked) == 1:
                return {"results": [{"partition": "0", "result": "refused", "why": "no such"}]}
            return {"results": [{"partition": "0", "result": "ok"}]}

        with mock.patch.object(parti.consumer, "time", clock):
            consumer = self.consumer(clock, call)
            self.assertEqual(list(consumer), [])
            consumer._held["0"].done = 5
            consumer._commit()
        self.assertEqual(asked, [4, 5])
        told = {"doing": "commit", "partition": "0", "why": "no such"}
        self.assertEqual(self.told, [("trouble", told)])

    def test_what_is_no_answer_to_a_commit_is_a_failure_like_others(self):
        foreign = [[], {}, {"results": {}}, {"results": []}, {"results": [None]}]
        answers = [*foreign, {"results": [{"partition": "0", "result": "ok"}]}]
        with mock.patch.object(parti.consumer, "time", Clock(ends=60)) as clock:
            consumer = self.consumer(clock, lambda *_, **__: answers.pop(0))
            self.assertEqual(list(consumer), [])
        self.assertEqual([event for event, _ in self.told], ["trouble"] * len(foreign))
        self.assertEqual(consumer._held["0"].committed, 4)

    def test_a_wrong_name_is_final_only_where_there_is_no_other_instance(self):
        wrong = parti.PartiError(421, "wrong_host", "this service does not go by that name", "")
        for urls, final in (("http://a", True), ("http://a,http://b", False)):
            answers = [wrong, {"results": [{"partition": "0", "result": "ok"}]}]
            with mock.patch.object(parti.consumer, "time", Clock(ends=60)) as clock:
                consumer = self.consumer(clock, mock.Mock(side_effect=answers), urls)
                if final:
                    self.assertRaises(parti.PartiError, list, consumer)
                else:
                    self.assertEqual(list(consumer), [])
            self.assertEqual(consumer._held["0"].committed, None if final else 4)

    def test_mended_it_commits_as_often_as_before(self):
        clock, asked = Clock(ends=60), []

        def call(*_, **__):
            asked.append(clock.now)
            consumer._held["0"].done += 1
            if len(asked) < 4:
                raise parti.PartiError(503, "unavailable", "away", "wait")
            return {"results": [{"partition": "0", "result": "ok"}]}

        with mock.patch.object(parti.consumer, "time", clock):
            consumer = self.consumer(clock, call)
            self.assertEqual(list(consumer), [])
        self.assertGreater(len(asked), 50)


class Leaving(Handled):
    """The end: what is handled is committed before anything is given up."""

    def leave(self, *answers, urls="http://a"):
        """What is asked while it leaves, and is answered so."""
        asked, answers = [], list(answers)

        def call(method, what, body=None, **_):
            asked.append((consumer.client.at, what or method))
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        with mock.patch.object(parti.consumer, "time", Clock(ends=60)) as clock:
            consumer = self.consumer(clock, call, urls)
            consumer.close()
            self.assertLess(clock.now, 1003, "a person may wait for it")
        return asked

    OK = {"results": [{"partition": "0", "result": "ok"}]}
    AWAY = parti.PartiError(503, "unavailable", "away", "wait")

    def test_a_commit_that_fails_at_the_end_is_sent_again(self):
        asked = self.leave(self.AWAY, OSError("cut off"), [], self.OK, {})
        self.assertEqual(asked, [(0, "/commits")] * 4 + [(0, "DELETE")])
        self.assertEqual([(event, data["doing"]) for event, data in self.told],
                         [("trouble", "commit")] * 3)

    def test_where_it_fails_all_the_time_the_rest_is_still_given_up(self):
        asked = self.leave(*[self.AWAY] * 5, {})
        self.assertEqual(asked, [(0, "/commits")] * 5 + [(0, "DELETE")])

    def test_it_is_committed_where_the_session_is(self):
        elsewhere = parti.PartiError(421, "not_here", "not here", "")
        asked = self.leave(elsewhere, self.OK, {}, urls="http://a,http://b")
        self.assertEqual(asked, [(0, "/commits"), (1, "/commits"), (1, "DELETE")])

    def test_a_session_that_is_over_takes_nothing_more(self):
        over = parti.PartiError(410, "session_gone", "this session is over", "")
        self.assertEqual(self.leave(over, over), [(0, "/commits"), (0, "DELETE")])
        self.assertEqual([data["doing"] for _, data in self.told], ["commit"])

    def test_heartbeats_go_on_meanwhile(self):
        beaten = threading.Semaphore(0)

        def call(_, what, body=None, **__):
            if what == "/heartbeat":
                beaten.release()
                return {"lease_ms": 6000}
            if what == "/commits":
                while beaten.acquire(blocking=False):
                    pass
                for _ in range(5):
                    self.assertTrue(beaten.acquire(timeout=60))
            return self.OK

        consumer = self.consumer(Clock(ends=0), call)
        consumer._changed = threading.Condition()
        consumer._session["ttl_ms"] = 60
        beating = threading.Thread(target=consumer._beat, args=(consumer._session,))
        beating.start()
        self.addCleanup(beating.join)
        self.addCleanup(setattr, consumer, "_session", None)
        consumer.close()


class Sessions(unittest.TestCase):
    """What is told to a session, one event after the other, without threads."""

    def setUp(self):
        self.told = []
        self.consumer = parti.Consumer("http://127.0.0.1:1", "g", "t",
                                       on_event=lambda *told: self.told.append(told))
        self.consumer._session = {"ttl_ms": 6000, "path": "", "token": "one"}
        self.enterContext(mock.patch.object(self.consumer, "_fetch"))
        self.enterContext(mock.patch.object(self.consumer, "_register", self.register))

    def register(self):
        self.consumer._session = {"ttl_ms": 6000, "path": "", "token": "another"}

    def tell(self, event, **data):
        self.consumer._tell(self.consumer._session, event, data)
        self.consumer._take_events()

    def assigned(self, epoch, next_offset=0):
        self.tell("assigned", partition="0", epoch=epoch, next_offset=next_offset)
        return self.consumer._held["0"]

    def test_what_was_handled_does_not_outlive_the_session(self):
        self.assigned(epoch=1).done = 500
        self.tell("end", why="the group was deleted", again=True)
        # A group of the same name, made since: its epochs count from the beginning, too.
        self.assertEqual(self.assigned(epoch=2).next, 0)

    def test_a_session_that_goes_on_elsewhere_goes_on_after_what_was_handled(self):
        self.assigned(epoch=1).done = 500
        self.tell("session", held=[])
        self.assertEqual(self.assigned(epoch=2, next_offset=400).next, 501)
        self.tell("session", held=[])
        self.assertEqual(self.assigned(epoch=4, next_offset=400).next, 400, "others had it")

    def test_a_release_that_fails_is_sent_again_until_it_is_heard(self):
        clock, sent = Clock(ends=60), []

        def call(_, what, body=None, **__):
            sent.append((what, body))
            if len(sent) < 3:
                raise parti.PartiError(503, "unavailable", "away", "wait")
            return {"result": "ok"}

        with mock.patch.object(parti.consumer, "time", clock):
            self.consumer._changed, self.consumer._call = clock, call
            self.assigned(epoch=3).done = 7
            self.tell("revoke", partition="0", epoch=3, deadline_ms=0)
            clock.at_end = lambda: setattr(self.consumer, "_closed", True)
            self.assertEqual(list(self.consumer), [])
        self.assertEqual(sent, [("/released", {"partition": "0", "epoch": 3, "offset": 7})] * 3)
        self.assertEqual([event for event, _ in self.told],
                         ["assigned", "revoke", "trouble", "trouble", "released"])

    def test_what_is_told_again_under_its_epoch_goes_on_after_what_was_handled(self):
        call = mock.Mock(side_effect=[OSError("cut off"), {"result": "ok"}])
        self.consumer._call = call
        self.assigned(epoch=3).done = 7
        self.consumer._messages.append(parti.Message("0", 8, 3, None, None, [], 0))
        self.tell("revoke", partition="0", epoch=3, deadline_ms=0)
        # The stream is opened again: all that is held is told.
        self.tell("session", held=[{"partition": "0", "epoch": 3}])
        held = self.assigned(epoch=3, next_offset=2)
        self.assertEqual((held.next, len(self.consumer._messages)), (8, 0))
        self.consumer._release()
        self.assertEqual(call.call_count, 1, "it is held again")
        self.tell("revoke", partition="0", epoch=3, deadline_ms=0)
        self.assertEqual(call.call_args.args[2], {"partition": "0", "epoch": 3, "offset": 7})

    def test_what_others_have_is_not_released(self):
        self.consumer._call = mock.Mock(side_effect=OSError("cut off"))
        for event, data in (("lost", {"partition": "0", "epoch": 3}), ("session", {"held": []})):
            self.assigned(epoch=3)
            self.tell("revoke", partition="0", epoch=3, deadline_ms=0)
            self.assertEqual(len(self.consumer._releases), 1)
            self.tell(event, **data)
            self.assertEqual(len(self.consumer._releases), 0)


class Threads(unittest.TestCase):
    """What works beside the loop: nothing that comes back, or goes wrong, ends it unheard."""

    def setUp(self):
        self.told = []
        self.consumer = parti.Consumer("http://127.0.0.1:1", "g", "t")
        self.consumer._session = {"ttl_ms": 6000, "path": "", "token": "one"}
        self.consumer._fails = lambda _, doing, error, **where: self.told.append((doing, error))

    def test_fetching_goes_on(self):
        held = parti.consumer.Held("0", 1, 0)
        held.over = mock.Mock(is_set=lambda: len(self.consumer._messages) > 0)
        self.consumer._stream = "open"
        good = {"offset": 0, "headers": [{"name": "a", "value": "b"}], "timestamp_ms": 1,
                "payload_b64": "/w=="}
        foreign = [None, {}, {**good, "offset": "0"}, {**good, "headers": [{}]},
                   {**good, "headers": "a"}, {**good, "payload_b64": "a"}, {**good, "key": 1}]
        found = [{"messages": [one], "next": 1} for one in [*foreign, good]]
        with mock.patch.object(self.consumer.client, "request",
                               side_effect=[AttributeError("odd"), *found]):
            self.consumer._fetch(held)
        self.assertEqual([doing for doing, _ in self.told], ["fetch"] * (1 + len(foreign)))
        expected = parti.Message("0", 0, 1, None, b"\xff", [("a", "b")], 1)
        self.assertEqual(list(self.consumer._messages), [expected])

    def test_what_a_stream_that_is_left_was_refused_is_not_final(self):
        def refused(*_, **__):
            asked.append(self.consumer._stream)
            self.consumer._stream = "the next one"
            raise parti.PartiError(404, "not_found", "no such topic", "")

        asked, held = [], parti.consumer.Held("0", 1, 0)
        held.over = mock.Mock(is_set=lambda: len(asked) == 2 or self.consumer._final)
        self.consumer._stream = "the first one"
        with mock.patch.object(self.consumer.client, "request", refused):
            self.consumer._fetch(held)
            self.assertIsNone(self.consumer._final)
            asked.clear()
            self.consumer._fetch(held)
        self.assertEqual(self.consumer._final.code, "not_found")

    def test_heartbeats_go_on(self):
        def answered(*_, **__):
            if answers:
                return answers.pop(0)
            self.consumer._session = None
            raise AttributeError("odd")

        answers, clock = [[], {}, {"lease_ms": None}, {"lease_ms": 4000}], Clock(ends=60)
        with mock.patch.object(parti.consumer, "time", clock):
            self.consumer._call = answered
            self.consumer._beat(self.consumer._session)
        self.assertEqual([doing for doing, _ in self.told], ["heartbeat"] * 4)
        self.assertEqual(self.consumer._lease[1], 4)

    def test_listening_goes_on(self):
        def connected(timeout):
            if len(self.told) == 3:
                self.consumer._closed = True
            raise AttributeError("odd")

        self.consumer.client.connect = connected
        with mock.patch.object(parti.consumer, "time", Clock(ends=60)):
            self.consumer._listen(self.consumer._session)
        self.assertEqual([doing for doing, _ in self.told], ["listen"] * 3)

    def test_what_nobody_foresaw_is_told_by_its_name(self):
        consumer = parti.Consumer("http://127.0.0.1:1", "g", "t")
        consumer._fails(None, "fetch", KeyError("next"), partition="0")
        told = {"doing": "fetch", "partition": "0", "why": "KeyError('next')"}
        self.assertEqual(list(consumer._trouble.values()), [told])


class Requests(unittest.TestCase):
    """What goes over a connection."""

    def client(self, *connections):
        client = parti.Client("http://127.0.0.1:1")
        client.connect = mock.Mock(side_effect=connections)
        return client

    def connection(self, *answers, status=200):
        """One that answers so, one request after the other."""
        def answered(one):
            return one if isinstance(one, Exception) else mock.Mock(
                status=status, read=lambda: one)
        connection, pair = mock.Mock(), socket.socketpair()
        connection.sock = pair[0]
        for one in pair:
            self.addCleanup(one.close)
        connection.getresponse.side_effect = [answered(one) for one in answers]
        return connection

    def test_what_was_not_answered_in_time_is_not_sent_again(self):
        late = self.connection(b'{"placed": []}', socket.timeout("timed out"))
        next_one = self.connection(b'{"placed": []}')
        client = self.client(late, next_one)
        client.produce("t", [{"payload": "one"}])
        with self.assertRaises(TimeoutError):
            client.produce("t", [{"payload": "two"}])
        self.assertEqual(next_one.request.call_count, 0)

    def test_another_instance_may_have_a_session_but_a_wrong_name_stays_wrong(self):
        self.assertTrue(parti.PartiError(421, "not_here", "not here", "").passes)
        wrong = parti.PartiError(421, "wrong_host", "this service does not go by that name", "")
        self.assertFalse(wrong.passes)
        consumer = parti.Consumer("http://127.0.0.1:1", "g", "t")
        with mock.patch.object(consumer.client, "request", side_effect=wrong) as asked:
            with self.assertRaises(parti.PartiError):
                consumer.__enter__()
        self.assertEqual(asked.call_count, 1)

    def test_what_is_cut_off_is_a_failure_like_others(self):
        for cut in (b"", b'{"messages": [{"off', b"<html>", *FOREIGN):
            with self.assertRaises(parti.client.FAILURES):
                self.client(self.connection(cut)).fetch("t", "0", 0)
            with self.assertRaises(parti.PartiError) as raised:
                self.client(self.connection(cut, status=502)).fetch("t", "0", 0)
            self.assertTrue(raised.exception.passes)
            self.assertEqual(str(raised.exception), "the service answered 502")
        consumer = parti.Consumer("http://127.0.0.1:1", "g", "t")
        told = []
        consumer._tell = lambda _, event, data: told.append((event, data))
        whole = b'event: session\ndata: {"held": []}\n\n'
        for end in (b"", b"event: ass", b"event: assigned\ndata: {\"part"):
            stream = io.BytesIO(whole + end)
            self.assertFalse(consumer._read({}, stream), "it is opened again")
        self.assertEqual(told, [("session", {"held": []})] * 3)
        for foreign in (b"event: lost\ndata: {\n\n", b"event: lost\ndata: []\n\n",
                        b"event: lost\n\n", b'event: lost\ndata: {"partition": "0"}\n\n',
                        b'event: session\ndata: {"held": [null]}\n\n', b"<html>\n", b""):
            with self.assertRaises(parti.client.FAILURES):
                consumer._read({}, io.BytesIO(foreign))

    def test_what_bears_repetition_is_sent_again_where_the_connection_was_closed(self):
        closed = self.connection(b'{"end": 1}', ConnectionResetError("closed"))
        next_one = self.connection(b'{"end": 2}')
        client = self.client(closed, next_one)
        ends = [client.request("GET", "/")["end"] for _ in range(2)]
        self.assertEqual(ends, [1, 2])

    def test_what_did_not_get_out_is_sent_again(self):
        closed = self.connection(b'{"placed": []}')
        closed.request.side_effect = [None, BrokenPipeError("closed")]
        next_one = self.connection(b'{"placed": [1]}')
        client = self.client(closed, next_one)
        client.produce("t", [{"payload": "one"}])
        self.assertEqual(client.produce("t", [{"payload": "two"}]), [1])


if __name__ == "__main__":
    unittest.main()
