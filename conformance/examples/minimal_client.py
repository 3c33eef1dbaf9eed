#!/usr/bin/env python3
"""A small client for A2E's process capability, in the Python standard library alone (3.8 or later).

It speaks on its standard streams: what it writes goes to the host, and what the host says is its input. What it is to do stands
in the variable A2E_CONFORM_DO, as README.md says under "Test a client". To see it at work with a real host:

    $ mkfifo back
    $ export A2E_CONFORM_DO='[{"do":"spawn","cmd":["bash","-c","echo hello"]}, {"do":"await_end"}, {"do":"close"}]'
    $ python3 minimal_client.py < back | a2e-proc serve > back

Test it, in the folder above this one:

    $ a2e-proc conform --client "python3 examples/minimal_client.py"

It does one thing at a time, so it needs no threads: it waits for an answer by reading, and notes all events that it meets on
the way. A client that does several things at once would read in a thread, or a task, and leave answers where the callers find
them.
"""
import collections, json, os, sys, time, uuid


class Client:
    def __init__(self, from_host, to_host):
        self.from_host, self.to_host = from_host, to_host
        self.session_id = self.proc_id = ""
        # Events are kept by process, whether its id is known here by then or not: a host may be quicker with the output of a
        # process than with the answer that names it.
        self.output = collections.defaultdict(str)
        self.ended = set()

    # Lines.

    def send(self, kind, **fields):
        message = {"type": kind, "id": uuid.uuid4().hex, "version": "1.0", "ts": time.time(), **fields}
        self.to_host.write(json.dumps(message).encode() + b"\n")
        self.to_host.flush()  # or it might stay here, and both sides wait
        return message["id"]

    def receive(self):
        """The next message. Of an event it takes note itself."""
        for line in self.from_host:
            # Only "\n" ends a line. Python's text streams know other ends too, so these are bytes until here.
            if not line.strip():
                continue
            message = json.loads(line.decode())
            if message.get("type") == "proc/read/event":
                self.note(message)
            return message
        raise EOFError("the host has gone")

    def note(self, event):
        proc_id, data = event["proc_id"], event["data"]
        if proc_id in self.ended:
            return  # nothing follows the terminal event; whoever sends more is not listened to
        # The specification has text that holds JSON here, the published SDK the object itself.
        payload = json.loads(data) if isinstance(data, str) else data
        if event["stream_type"] == "killed" or "code" in payload:
            self.ended.add(proc_id)
            log(f"{proc_id} has ended: {payload.get('code', 'killed')}")
        elif "text" in payload:
            # A line may come in several events, so they are joined. To have the exact bytes of output that is not text, one
            # would take base64.b64decode(payload["base64"]) where that is there.
            self.output[proc_id] += payload["text"]
            log(f"{proc_id} {event['stream_type']}: {payload['text']!r}")

    def call(self, kind, **fields):
        """Sends a request and waits for its answer. What else comes is skipped: unknown types, and answers to others."""
        req_id, message = self.send(kind, **fields), {}
        while message.get("req_id") != req_id or message.get("type") not in (kind.replace("/req", "/resp"), "error"):
            message = self.receive()
        if message["type"] == "error":
            log(f"{kind}: {message.get('code')}: {message.get('message')}")
        elif message.get("ok") is False:
            log(f"{kind} was refused: {message.get('error') or message.get('reason') or message.get('state')}")
        return message

    # What it can be told to do. Keys that an answer has beside those that are asked for here do no harm.

    def handshake(self, caps=("proc",)):
        answer = self.call("handshake/req", agent_id="minimal-client", agent_caps=list(caps), auth_token="")
        if answer.get("ok"):
            self.session_id = answer.get("session_id", "")

    def spawn(self, **fields):
        answer = self.call("proc/spawn/req", session_id=self.session_id, **fields)
        self.proc_id = answer["proc_id"] if answer.get("ok") else ""

    def write(self, data="", eof=False):
        self.call("proc/write/req", proc_id=self.proc_id, data=data, eof=eof)

    def kill(self, signal="SIGTERM"):
        self.call("proc/kill/req", proc_id=self.proc_id, signal=signal)

    def status(self):
        answer = self.call("proc/status/req", proc_id=self.proc_id)
        log(f"{self.proc_id} is {answer.get('status')}")

    def await_text(self, text):
        while not self.output[self.proc_id].endswith(text):
            if self.proc_id in self.ended:
                raise EOFError(f"the process has ended, without {text!r}")
            self.receive()

    def await_end(self):
        while self.proc_id not in self.ended:
            self.receive()

    def close(self):
        self.to_host.close()  # the end of its input ends a host, and all its processes
        sys.exit(0)


def log(words):
    print(words, file=sys.stderr)


if __name__ == "__main__":
    client = Client(sys.stdin.buffer, sys.stdout.buffer)
    try:
        for action in json.loads(os.environ["A2E_CONFORM_DO"]):
            getattr(client, action.pop("do"))(**action)
    except (EOFError, BrokenPipeError) as e:
        log(e)
        os._exit(1)  # without another attempt to write what could not be written
