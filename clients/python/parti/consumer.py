"""A member of a group: its session, what it holds, the loop."""

import collections
import json
import threading
import time

from .client import FAILURES, FINAL, Client, PartiError, answer, content, fits, quote

Message = collections.namedtuple(
    "Message", ["partition", "offset", "epoch", "key", "payload", "headers", "timestamp_ms"]
)

# What has to be in an event.
EVENTS = {
    "session": {"held": list},
    "assigned": {"partition": str, "epoch": int, "next_offset": int},
    "revoke": {"partition": str, "epoch": int},
    "lost": {"partition": str, "epoch": int},
    "end": {"why": str},
}


def message(held, told):
    """A message of what is held."""
    fits(told, offset=int, headers=list, timestamp_ms=int)
    headers = [(fits(one, name=str)["name"], content(one, "value")) for one in told["headers"]]
    return Message(held.partition, told["offset"], held.epoch, content(told, "key"),
                   content(told, "payload"), headers, told["timestamp_ms"])


class Held:
    """A partition that is ours, under an epoch."""

    def __init__(self, partition, epoch, start):
        self.partition, self.epoch, self.next = partition, epoch, start
        self.over = threading.Event()
        self.done = None  # the last offset that is handled
        self.committed = None
        self.refused = None  # what the service will not take


class Consumer:
    """One member of a group. Iterate over it; leave the `with` to deregister."""

    BUFFERED = 1000
    LONGEST_PAUSE = 5.0  # between two commits while they fail, in seconds
    RELEASE_AGAIN = 0.3  # after one that failed, in seconds
    LEAVING = 2.0  # so long a commit is tried again at the end, in seconds

    def __init__(self, url, group, topic, name="python", token=None, metadata=None,
                 commit_every=0.5, on_event=None):
        # Where the stream is, everything else goes: only the stream moves on.
        self.client = Client(url, token, moves=False)
        self.group, self.topic, self.name = group, topic, name
        self.metadata = metadata or {}
        self.commit_every = commit_every
        self._on_event = on_event or (lambda event, data: None)
        self._held = {}
        self._left = {}  # what was held last of a partition that is not held now
        self._releases = {}  # what was let go of, and the service has not heard that yet
        self._may_release_at = 0.0
        self._events = collections.deque()
        self._trouble = {}  # what went wrong since it was last told, by what was being done
        self._messages = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._session = None
        self._stream = None  # the stream that is open: its instance has our session
        self._final = None  # what nothing but a person can mend
        self._lease = (0.0, 0.0)  # when the newest answered heartbeat was sent; how long it lasts
        self._committed_at = time.monotonic()
        self._pause = 0.0  # commits fail: so long until the next one
        self._may_commit_at = 0.0

    # -- its life

    def __enter__(self):
        for more in reversed(range(len(self.client))):
            try:
                self._register()
                break
            except PartiError as error:
                if not self.client.passes(error):
                    raise
                self._again(error)
                break
            except FAILURES:
                if not more:
                    raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Commits, and gives everything to others."""
        if self._closed:
            return
        self._closed = True
        if self._session is None:
            return
        try:
            self._leave()
        finally:
            self._drop_all()
            self._session = None  # heartbeats went on until now

    def _leave(self):
        """What is not committed others handle again: so what may do later is tried again for a
        while. If it does not do, the session falls silent, and is over after its TTL."""
        until = time.monotonic() + self.LEAVING
        self._take_results(self._insist("commit", self._send_commits, until) or ())
        for held in list(self._releases.values()):
            result = self._insist("release", lambda: self._send_release(held), until)
            if result is not None:
                self._is_released(held, result)
        self._insist("leave", lambda: self._call("DELETE", ""), until)
        self._tell_trouble()

    def _insist(self, doing, work, until):
        wait = 0.1
        while True:
            at = self.client.at
            try:
                return work()
            except FAILURES as error:
                failed = error
            status = getattr(failed, "status", None)
            if (doing, status) == ("leave", 410):
                return None  # there is nothing to leave any more
            self._fails(self._session, doing, failed)
            self._tell_trouble()
            over = status == 410 or not self.client.passes(failed)
            if over or time.monotonic() + wait >= until:
                return None
            if status == 421:
                self.client.move_on(at)  # the session may be there
            time.sleep(wait)
            wait *= 2

    def _register(self):
        body = {"consumer": self.name, "metadata": self.metadata, "liveness": "heartbeat",
                "topic": self.topic}
        path = f"/v1/groups/{quote(self.group)}/sessions"
        at = self.client.at
        try:
            session = fits(self.client.request("POST", path, body),
                           session=str, token=str, worker=str, ttl_ms=int)
        except FAILURES as error:
            if self.client.passes(error):
                self.client.move_on(at)
            raise
        session["path"] = f"{path}/{quote(session['session'])}"
        self._check_topic(session)
        self._session, self._lease = session, (0.0, 0.0)
        self._pause = self._may_commit_at = 0.0  # what failed was another session's
        self._on_event("registered", {"worker": session["worker"]})
        for work in (self._listen, self._beat):
            threading.Thread(target=work, args=(session,), daemon=True).start()

    def _check_topic(self, told):
        """What is committed would count for messages that nobody here has seen."""
        topic = told.get("topic", self.topic)
        if topic != self.topic:
            raise PartiError(409, "conflict",
                             f"topic: the group {self.group!r} is about {topic!r}, not about "
                             f"{self.topic!r}", f"give {topic!r}, or another group")

    def _call(self, method, what, body=None, session=None):
        session = session or self._session
        # An instance that does not answer may be frozen: the session goes on elsewhere meanwhile.
        timeout = max(session["ttl_ms"] / 2000, 1)
        path = session["path"] + what
        return self.client.request(method, path, body, session["token"], timeout)

    def _may_handle(self):
        """Whether what is held is certainly ours. Only the answer to a heartbeat says so, for as
        long as it says, from when it was sent: what the stream says may have waited for long."""
        began, lasts = self._lease
        return self._session is not None and time.monotonic() < began + lasts

    def _beat(self, session):
        """Says that this process is there, three times in a TTL. Also if it has just said something
        else: its connection stays open that way, and has its place when the house is full."""
        third = session["ttl_ms"] / 3000
        while session is self._session:
            began, wait = time.monotonic(), third
            try:
                heard = fits(self._call("POST", "/heartbeat", session=session), lease_ms=int)
                if session is self._session:
                    self._lease = (began, heard["lease_ms"] / 1000)
            except Exception as error:
                wait = third / 4  # the stream tells what became of the session
                self._fails(session, "heartbeat", error)
            time.sleep(max(began + wait - time.monotonic(), 0.01))

    # -- what is told

    def _listen(self, session):
        """Reads the stream, and opens it again while the session lives."""
        patience = session["ttl_ms"] / 1000
        while not self._closed and session is self._session:
            at = self.client.at
            try:
                # Signs of life come three times in a TTL.
                if self._hear(session, timeout=max(patience * 0.7, 1)):
                    return
            except Exception as error:
                if getattr(error, "status", None) in (401, 404, 410):
                    end = {"why": str(error), "again": error.code != "dismissed",
                           "code": error.code}
                    self._tell(session, "end", end)
                    return
                if not self._closed:
                    self._fails(session, "listen", error)
                if getattr(error, "status", None) == 421 and not self.client.passes(error):
                    with self._changed:
                        if session is self._session:
                            self._final = error
                # Wherever the stream is, the session is.
                self.client.move_on(at)
            time.sleep(min(patience / 10, 0.2))

    def _hear(self, session, timeout):
        """One stream, to its end. True once the session has ended."""
        connection = self.client.connect(timeout)
        try:
            headers = self.client.headers(session["token"])
            connection.request("GET", session["path"] + "/events", headers=headers)
            with connection.getresponse() as response:
                if response.status != 200:
                    answer(response.status, response.read())
                    raise ValueError(f"the stream was answered {response.status}")
                return self._read(session, response)
        finally:
            # Whoever fetches knows it before another instance is asked.
            self._is_open(session, None)
            connection.close()

    def _is_open(self, session, stream):
        with self._changed:
            if session is self._session:
                self._stream = stream
                self._changed.notify_all()

    def _read(self, session, response):
        """True once the session has ended."""
        event, data, begun = None, None, False
        while True:
            line = response.readline()
            if not line.endswith(b"\n"):
                if not begun:
                    raise ValueError("the stream ended before it began")
                return False  # cut off, maybe within a line
            line = line.decode().rstrip("\r\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and event:
                self._check(session, event, data)
                if event == "session":
                    begun = True  # whatever does not begin so is no stream of the service
                    self._is_open(session, response)
                self._tell(session, event, data)
                if event == "end":
                    return True
                event, data = None, None

    def _check(self, session, event, data):
        """An event is what it is to be, and of an instance that has the session, or it is a failure.
        One that the session has left, and that has not noticed yet, tells what was ours before."""
        fits(data, **EVENTS.get(event, {}))
        had = session.setdefault("epochs", {})  # the highest of each partition
        held = {"session": data.get("held"), "assigned": [data]}.get(event, ())
        for one in held:
            fits(one, partition=str, epoch=int)
            partition, epoch = one["partition"], one["epoch"]
            if epoch < had.get(partition, epoch):
                raise ValueError(f"partition {partition} is told under epoch {epoch}, after "
                                 f"{had[partition]}: the session went on elsewhere since")
            had[partition] = epoch

    def _tell(self, session, event, data):
        with self._changed:
            if session is self._session:
                self._events.append((event, data))
                self._changed.notify_all()

    def _fails(self, session, doing, error, **where):
        """Has trouble told by the loop, once for each turn of it."""
        with self._changed:
            if session is self._session:
                plain = isinstance(error, (str, *FAILURES))
                why = (plain and str(error)) or repr(error)
                told = {"doing": doing, **where, "why": why}
                self._trouble[(doing, *where.values())] = told
                self._changed.notify_all()

    # -- the loop

    def __iter__(self):
        while not self._closed:
            self._take_events()
            if self._final:
                raise self._final
            self._commit_if_due()
            self._release()
            message = self._next()
            if message is None:
                continue
            held = self._held.get(message.partition)
            if held is None or held.epoch != message.epoch:
                continue  # it was let go of since
            yield message
            held.done = message.offset

    def _next(self):
        with self._changed:
            if self._events or self._trouble:
                return None
            if not self._may_handle():
                # Others may have it by now. The stream will tell.
                self._changed.wait(0.1)
                return None
            if self._messages:
                message = self._messages.popleft()
                self._changed.notify_all()
                return message
        # Nothing to do: what is done need not wait.
        self._commit()
        wait = min(self.commit_every, self.RELEASE_AGAIN) if self._releases else self.commit_every
        with self._changed:
            if not self._events and not self._messages and not self._trouble:
                self._changed.wait(wait)
        return None

    def _tell_trouble(self):
        with self._changed:
            trouble, self._trouble = self._trouble, {}
        for told in trouble.values():
            self._on_event("trouble", told)

    def _take_events(self):
        self._tell_trouble()
        while True:
            with self._changed:
                if not self._events:
                    return
                event, data = self._events.popleft()
            if event == "session":
                self._check_topic(data)
                known = {(one["partition"], one["epoch"]) for one in data["held"]}
                for held in [*self._held.values(), *self._releases.values()]:
                    if (held.partition, held.epoch) not in known:
                        self._drop(held.partition)
                        self._releases.pop(held.partition, None)
            elif event == "assigned":
                self._begin(data)
            elif event == "revoke":
                self._let_go(data)
            elif event == "lost":
                held = self._held.get(data["partition"])
                if held and held.epoch == data["epoch"]:
                    self._drop(data["partition"])
                self._releases.pop(data["partition"], None)  # not heard in time
            elif event == "end":
                self._on_event("end", data)
                if data.get("again") is False:
                    self._drop_all()
                    self._session = None
                    raise PartiError(410, "dismissed", data["why"], "")
                self._again()
                continue
            if event in ("assigned", "revoke", "lost"):
                self._on_event(event, data)

    def _begin(self, data):
        held = self._held.get(data["partition"])
        if held and held.epoch == data["epoch"]:
            return  # the stream was opened again: it goes on
        if held:
            self._drop(held.partition)
        held = Held(data["partition"], data["epoch"], data["next_offset"])
        left = self._left.pop(held.partition, None)
        self._releases.pop(held.partition, None)  # if it is to go, that is told again
        if left and left.done is not None and held.epoch in (left.epoch, left.epoch + 1):
            # Epochs count owners: nobody else had it meanwhile. So it goes on after what is handled.
            if left.done >= held.next:
                held.done, held.next = left.done, left.done + 1
        self._held[held.partition] = held
        threading.Thread(target=self._fetch, args=(held,), daemon=True).start()

    def _let_go(self, data):
        held = self._held.get(data["partition"])
        if held is None or held.epoch != data["epoch"]:
            return
        self._drop(held.partition)
        self._releases[held.partition] = held
        self._may_release_at = 0.0
        self._release()

    def _release(self):
        """Says what was let go of, again and again until the service has heard it: else others wait
        until the deadline, and handle again what is not committed. That the session is over, goes on
        elsewhere, or was too late, is what the stream tells."""
        for held in list(self._releases.values()):
            if time.monotonic() < self._may_release_at:
                return
            try:
                result = self._send_release(held)
            except FAILURES as error:
                self._may_release_at = time.monotonic() + self.RELEASE_AGAIN
                self._fails(self._session, "release", error, partition=held.partition)
                continue
            self._is_released(held, result)

    def _send_release(self, held):
        body = {"partition": held.partition, "epoch": held.epoch}
        if held.done is not None:
            body["offset"] = held.done
        return fits(self._call("POST", "/released", body), result=str)

    def _is_released(self, held, result):
        del self._releases[held.partition]
        self._on_event("released", {"partition": held.partition, **result})

    def _drop(self, partition):
        held = self._held.pop(partition, None)
        if held is None:
            return
        self._left[partition] = held
        with self._changed:
            held.over.set()
            # If it comes again under the same epoch, they are fetched again.
            kept = [one for one in self._messages if one.partition != partition]
            self._messages = collections.deque(kept)
            self._changed.notify_all()

    def _drop_all(self):
        for partition in list(self._held):
            self._drop(partition)
        self._releases.clear()
        with self._changed:
            self._messages.clear()
            self._changed.notify_all()

    def _again(self, trouble=None):
        """There is no session, or it is over: everything is lost, and a new one begins."""
        self._drop_all()
        # Meanwhile others may have had all of it, and the group may be another one of that name,
        # whose epochs begin anew: no epoch tells any more what is handled.
        self._left.clear()
        with self._changed:
            self._events.clear()
            self._session = self._stream = None
        wait = 0.1
        while not self._closed:
            if trouble:
                self._on_event("trouble", {"doing": "register", "why": str(trouble)})
                time.sleep(wait)
                wait = min(wait * 2, 5)
            try:
                return self._register()
            except FAILURES as error:
                if not self.client.passes(error):
                    raise
                trouble = error

    def _fetch(self, held):
        """Long polls for one partition, until it is let go of. Only at an instance that has our
        session: what another one has need not be the group's."""
        while not held.over.is_set() and not self._closed:
            with self._changed:
                stream = self._stream
                if stream is None:
                    self._changed.wait(0.2)
                    continue
            try:
                found = self.client.fetch(self.topic, held.partition, held.next, wait_ms=5000,
                                          group=self.group)
                messages = [message(held, one) for one in found["messages"]]
            except Exception as error:
                if not held.over.is_set():
                    if getattr(error, "status", None) in FINAL and not self.client.passes(error):
                        with self._changed:
                            # Elsewhere it may do: the stream tells where that is.
                            if stream is self._stream:
                                self._final = error
                    if not self._closed:
                        self._fails(self._session, "fetch", error, partition=held.partition)
                held.over.wait(0.5)
                continue
            if stream is not self._stream:
                continue
            for one in messages:
                with self._changed:
                    while len(self._messages) >= self.BUFFERED and not held.over.is_set():
                        self._changed.wait(0.5)
                    if held.over.is_set():
                        return
                    self._messages.append(one)
                    self._changed.notify_all()
            held.next = found["next"]

    # -- progress

    def _commit_if_due(self):
        if time.monotonic() - self._committed_at >= self.commit_every:
            self._commit()

    def _commit(self):
        """Commits what is done. While that fails, with growing pauses: whoever refuses at once would
        be asked thousands of times a second."""
        if time.monotonic() < self._may_commit_at:
            return
        self._committed_at = time.monotonic()
        try:
            results = self._send_commits()
        except FAILURES as error:
            if not self.client.passes(error) and error.status != 401:
                raise
            # The stream tells the end; or again with the next ones: a commit bears repetition.
            self._pause = min(max(self._pause * 2, self.commit_every, 0.1), self.LONGEST_PAUSE)
            self._may_commit_at = time.monotonic() + self._pause
            return self._fails(self._session, "commit", error)
        self._pause = 0.0
        self._take_results(results)

    def _send_commits(self):
        """Sends what is done and not committed: each with its offset, and what became of it."""
        dirty = [h for h in self._held.values()
                 if h.done is not None and h.done not in (h.committed, h.refused)]
        if not dirty:
            return []
        commits = [{"partition": h.partition, "epoch": h.epoch, "offset": h.done} for h in dirty]
        told = fits(self._call("POST", "/commits", {"commits": commits}), results=list)
        results = [fits(one, result=str) for one in told["results"]]
        if len(results) != len(commits):
            raise ValueError(f"{len(commits)} commits have {len(results)} results")
        return list(zip(dirty, (commit["offset"] for commit in commits), results))

    def _take_results(self, results):
        """What turns out to be somebody else's is dropped."""
        for held, offset, result in results:
            if result["result"] == "ok":
                held.committed = offset
            elif result["result"] == "fenced":
                self._drop(held.partition)
                self._on_event("lost", {"partition": held.partition, "why": result.get("why")})
            else:
                # Not asked again until more is done: the answer would be the same.
                held.refused = offset
                self._fails(self._session, "commit", result.get("why") or "refused",
                            partition=held.partition)
