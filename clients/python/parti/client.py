"""Requests to the instances of a service, and what they answer."""

import base64
import http.client
import json
import selectors
import threading
import urllib.parse


class PartiError(Exception):
    """The service did not do it: `status`, `code`, and what to do about it."""

    def __init__(self, status, code, message, remedy):
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.status, self.code, self.remedy = status, code, remedy

    @property
    def passes(self):
        """Whether the same may do later: the service has too much to do, or trouble of its own, or
        what the session was to do is to be done in another one."""
        if self.status == 421:
            return self.code == "not_here"  # an instance goes by its names, and by no other
        return self.status in (408, 410, 429) or self.status >= 500


# What is no JSON (ValueError) was cut off, or is somebody else's answer.
FAILURES = (PartiError, OSError, http.client.HTTPException, ValueError)
FINAL = (400, 401, 403, 404, 409, 421)  # what is answered so is answered so again


def instance(url):
    """How to connect to one instance."""
    parts = urllib.parse.urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no URL of a service")
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return lambda timeout: kind(parts.hostname, parts.port, timeout=timeout)


class Client:
    """Requests to one of a service's instances. Every thread has a connection of its own."""

    def __init__(self, url, token=None, timeout=60, moves=True):
        self._instances = [instance(one) for one in url.split(",")]
        self._at = 0
        self._moves = moves  # whether it asks the next instance by itself
        self._token, self._timeout = token, timeout
        self._own = threading.local()

    @property
    def at(self):
        """Which instance is asked."""
        return self._at

    def move_on(self, at):
        """That instance is of no use: the next one is asked from now on."""
        if self._at == at:
            self._at = (at + 1) % len(self._instances)

    def __len__(self):
        """How many instances are known."""
        return len(self._instances)

    def passes(self, error):
        """Whether the same may do later, or elsewhere: another instance may go by its name."""
        if not isinstance(error, PartiError):
            return True
        return error.passes or (error.status == 421 and len(self) > 1)

    def connect(self, timeout=None):
        return self._instances[self._at](timeout or self._timeout)

    def headers(self, token=None):
        token = token or self._token
        return {"authorization": f"Bearer {token}"} if token else {}

    def _connected(self, timeout):
        """A connection of this thread, and whether it is new. One that cannot be made was asked for
        nothing yet, so the next instance may be asked instead."""
        for more in reversed(range(len(self._instances) if self._moves else 1)):
            at = self._at
            asked, connection = getattr(self._own, "connection", (None, None))
            if connection is not None and asked == at and is_idle(connection.sock):
                connection.timeout = timeout
                connection.sock.settimeout(timeout)
                return connection, False
            self._disconnect()
            connection = self.connect(timeout)
            try:
                connection.connect()
            except OSError:
                if not more:
                    raise
                self.move_on(at)
                continue
            self._own.connection = (at, connection)
            return connection, True
        raise AssertionError("unreachable")

    def _disconnect(self):
        _, connection = getattr(self._own, "connection", (None, None))
        if connection is not None:
            connection.close()
        self._own.connection = (None, None)

    def request(self, method, path, body=None, token=None, timeout=None, repeats=True):
        """One request. It is sent again once if the connection turns out to be closed; not if it was
        not answered in time. What does not bear repetition (`repeats`) is sent again only if it did
        not get out as a whole: then nobody can have done it."""
        headers = self.headers(token)
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["content-type"] = "application/json"
        for again in (True, False):
            connection, fresh = self._connected(timeout or self._timeout)
            sent = False
            try:
                connection.request(method, path, data, headers)
                sent = True
                response = connection.getresponse()
                status, told = response.status, response.read()
            except BaseException as error:
                self._disconnect()  # its answer may still come, and is for nobody
                if not isinstance(error, (http.client.HTTPException, OSError)):
                    raise
                if sent and not repeats:
                    raise unknown(error) from error
                if fresh or not again or isinstance(error, TimeoutError):
                    raise
                continue
            return answer(status, told)
        raise AssertionError("unreachable")

    def produce(self, topic, messages):
        """Appends messages: dicts with key, payload (text or bytes), headers, partition. A
        ConnectionError or TimeoutError says so if they may be stored and may be not: they are not
        sent again by themselves, or they would be there twice."""
        body = {"messages": [outgoing(message) for message in messages]}
        path = f"/v1/topics/{quote(topic)}/messages"
        return fits(self.request("POST", path, body, repeats=False), placed=list)["placed"]

    def fetch(self, topic, partition, start, limit=100, wait_ms=0, group=None):
        """Messages of a partition from an offset on, as the service tells them. With a group, only
        from the log that it began with."""
        path = f"/v1/topics/{quote(topic)}/partitions/{quote(partition)}/messages"
        asked = f"from={start}&limit={limit}&wait_ms={wait_ms}"
        if group is not None:
            asked += f"&group={quote(group)}"
        return fits(self.request("GET", f"{path}?{asked}"), messages=list, next=int)

    def create_group(self, group, topic, partitions, strategy="fair_share"):
        """Makes a group; the same again is fine."""
        body = {"group": group, "topic": topic, "partitions": partitions, "strategy": strategy}
        return self.request("POST", "/v1/groups", body)


def quote(name):
    return urllib.parse.quote(str(name), safe="")


def is_idle(sock):
    """Whether it is open as far as one can see: closed, or with something unasked to say, it can be
    read."""
    if sock is None:
        return False
    with selectors.DefaultSelector() as readable:
        readable.register(sock, selectors.EVENT_READ)
        return not readable.select(0)


def unknown(error):
    """It was sent, and what became of it nobody has told."""
    kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
    return kind(f"whether the messages are stored is not known ({str(error) or repr(error)}); look "
                "at the ends of the partitions, or send them again if they may be there twice")


def answer(status, data):
    """The JSON of an answer, or what went wrong. A gateway's page says only its status."""
    try:
        body = json.loads(data or b"null")
    except (ValueError, RecursionError):
        body = None
    if status < 400:
        if body is None and status != 204:
            raise ValueError(f"the service answered {status}, and no JSON")
        return body
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    said = {name: word for name, word in error.items() if isinstance(word, str)}
    message = said.get("message", f"the service answered {status}")
    raise PartiError(status, said.get("code", "unknown"), message, said.get("remedy", ""))


def fits(told, **fields):
    """What was told, if it has these fields, each of its kind: anything else is somebody else's
    answer, and a failure like others."""
    if not isinstance(told, dict):
        raise ValueError(f"no answer of the service: {repr(told)[:100]}")
    for name, kind in fields.items():
        if type(told.get(name)) is not kind:
            raise ValueError(f"no answer of the service: {name} is {repr(told.get(name))[:100]}")
    return told


def outgoing(message):
    sent = {}
    for name in ("key", "payload"):
        value = message.get(name)
        if isinstance(value, bytes):
            sent[f"{name}_b64"] = base64.b64encode(value).decode()
        elif value is not None:
            sent[name] = value
    if message.get("partition") is not None:
        sent["partition"] = str(message["partition"])
    sent["headers"] = [{"name": n, "value": v} for n, v in message.get("headers", ())]
    return sent


def content(message, name):
    """Text, or bytes where it is none."""
    for field in (f"{name}_b64", name):
        if message.get(field) is not None:
            text = fits(message, **{field: str})[field]
            return text if field == name else base64.b64decode(text)
    return None
