"""Consumes a topic, and prints a JSON line for everything that happens.

    python3 example.py http://127.0.0.1:7070 billing orders
"""

import json
import os
import signal
import sys

from parti import Consumer


def say(event, data):
    print(json.dumps({"event": event, **(data or {})}), flush=True)


def main():
    url, group, topic = sys.argv[1:4]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    token = os.environ.get("PARTI_TOKEN")
    with Consumer(url, group, topic, token=token, on_event=say) as consumer:
        for message in consumer:
            say("message", {
                "partition": message.partition, "offset": message.offset,
                "epoch": message.epoch, "payload": message.payload,
            })


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
