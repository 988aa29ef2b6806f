"""The served OpenAPI document, held against the service by schemathesis.

    CASES  how many cases for each operation; few by default: a longer campaign is
           `cargo xtask campaign api`
    SEED   which cases
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from scene import Case

CASES = os.environ.get("CASES", "8")
SEED = os.environ.get("SEED", "1")

# How what violates the schema may be refused; and what fits it, because of how things are. A plain
# 400 is none of the latter: what fits the schema can be understood.
REFUSALS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 410, 413, 415, 416, 429, 503]

[checks.positive_data_acceptance]
expected-statuses = ["2XX", 401, 403, 404, 409, 410, 416, 421, 429, 503]
"""

# Where a 400 is not held against the service though the schema is kept, and what no schema can say.
INEXACT = {
    "POST /v1/groups": "how long a topic's name is counts in escaped bytes, not in characters",
    "POST /v1/groups/{group}/plan": "ids as keys of an object; which workers there are",
    "POST /v1/groups/{group}/checkpoints": "ids are canonical, and why is bounded in bytes",
    "POST /v1/groups/{group}/requests": "what each kind needs; why is bounded in bytes",
    "POST /v1/topics/{topic}/messages": "text or base64 of each, not both; what is base64",
}

# Streams go on for as long as somebody listens: other tests listen to them. Where every one of them
# is refused, they are held against their description, too.
NO_STREAMS = ["--exclude-path-regex", "/live$|/sessions/.*/events$"]

TOKEN = "a-token-that-may-do-everything"
READ_TOKEN = "a-token-that-may-only-look"


class Described(Case):
    """No server error, no schema violation."""

    def hold(self, served, token=None, known=None, only=(), streams=NO_STREAMS):
        """Lets schemathesis loose. `known` are names that exist, by parameter."""
        settings = Path(self.folder) / "schemathesis.toml"
        names = [f'"path.{name}" = "{value}"' for name, value in (known or {}).items()]
        inexact = [f'[[operations]]\ninclude-name = "{name}"\n'
                   "checks.positive_data_acceptance.enabled = false" for name in INEXACT]
        settings.write_text("\n".join(["[parameters]", *names, REFUSALS, *inexact]))
        command = [
            Path(sys.executable).parent / "schemathesis", "--config-file", settings, "run",
            f"{served.url}/v1/openapi.json", "--no-color", "--seed", SEED,
            "--max-examples", CASES, "--generation-database", "none",
            "--phases", "coverage,fuzzing,stateful", "--request-timeout", "90", *streams,
        ]
        if token:
            command += ["--header", f"Authorization: Bearer {token}"]
        command += only
        done = subprocess.run(command, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        told = "\n".join(line[:300] for line in done.stdout.splitlines() + served.process.err)
        self.assertEqual(done.returncode, 0, told)
        self.assertRegex(done.stdout, r"(\d\d+) generated, \1 passed", "they really ran")
        status, _ = served.call("GET", "/v1/about")
        self.assertEqual(status, 200, "it still works")

    def test_an_open_service(self):
        self.hold(self.serve())

    def test_with_the_token_among_things_that_exist(self):
        served = self.serve(token=TOKEN, read_token=READ_TOKEN)
        served.make_group("g", "t", 4)
        self.hold(served, TOKEN, {"group": "g", "topic": "t", "partition": "0"})

    def test_with_a_token_that_may_only_look(self):
        served = self.serve(token=TOKEN, read_token=READ_TOKEN)
        served.make_group("g", "t", 4)
        self.hold(served, READ_TOKEN, {"group": "g"})

    def test_without_the_token(self):
        self.hold(self.serve(token=TOKEN), streams=())

    def test_a_session_of_its_own(self):
        served = self.serve()
        served.make_group("g", "t", 4)
        status, session = served.call("POST", "/v1/groups/g/sessions", {"consumer": "test"})
        self.assertEqual(status, 201, session)
        self.hold(served, session["token"], {"group": "g", "session": session["session"]},
                  ["--include-path-regex", "/sessions/", "--exclude-method", "DELETE"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
