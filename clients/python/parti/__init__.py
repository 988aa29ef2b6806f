"""A consumer of Parti groups, with nothing but the standard library.

    from parti import Consumer

    with Consumer("http://127.0.0.1:7070", group="billing", topic="orders") as consumer:
        for message in consumer:
            bill(message.payload)          # done when the next one is asked for

What it does, beside the loop:

    stream ──▶ assigned, revoke, lost ──▶ between two messages: begin, let go, drop
    fetchers ──▶ one long poll for each partition that is held ──▶ messages, in order
    done ──▶ commits in batches; all of it before a partition is let go of
    beats ──▶ a heartbeat three times in a TTL. Answers are the lease, and say how long it lasts:
              without it (frozen, or cut off), nothing is handled
    instance gone, in trouble, or cut off from its store ──▶ the stream is opened at the next one,
                      where the session goes on: partitions come again under the next epoch, and
                      go on after what is handled
    session gone (no sign of life for its TTL) ──▶ registers again; nothing old is committed
    trouble of the service (5xx) ──▶ tried again later, for as long as it takes; told to `on_event`
                      as "trouble", with what was being done and why it failed
    evicted for good by an operator ──▶ PartiError, code "dismissed"
    the group is about another topic, or there is no such group ──▶ PartiError: nobody else could
                      mend that while this one waits

Several instances of the service are one URL with commas: "http://a:7070,http://b:7070".

A message that was handled may come again after a crash, from the last commit on. `message.epoch`
is the fencing token for whatever you write elsewhere: it grows with every change of owner.
"""

from .client import Client, PartiError
from .consumer import Consumer, Message

__all__ = ["Client", "Consumer", "Message", "PartiError"]
