"""An agent as real ones are, over both transports of the published SDK: lines to a program, or HTTP with server-sent events.

    a2e_client.py stdio HOST ARGS…        starts the host itself, again for each client
    a2e_client.py http://HOST:PORT        uses one that listens

Plays one flow after the other, prints a line for each, and exits with 1 if one went wrong. The host must allow bash, cat, python3,
seq and sleep. Events may have their data as an object or as text. Needs `requests` for HTTP.
"""
import json, subprocess, sys, threading, time, uuid


class StdioTransport:
    def __init__(self, command, take):
        self.host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.thread = threading.Thread(target=self.read, args=[take])
        self.thread.start()

    def read(self, take):
        for line in self.host.stdout:
            take(line.decode().rstrip("\r\n"))

    def send(self, line):
        self.host.stdin.write(line.encode() + b"\n")
        self.host.stdin.flush()

    def stop(self):
        """Closes the input; the host has 3 seconds, and should need no signal."""
        self.host.stdin.close()
        code = self.host.wait(timeout=3)
        self.thread.join()
        assert code == 0, f"the host exited with {code}"


class HttpTransport:
    """One connection to send, and a stream that comes back after it broke, with the id of the last event if `resumes`."""

    def __init__(self, url, take, resumes=True):
        import requests
        self.url, self.resumes, self.last, self.stopped = url, resumes, "", False
        self.http = requests.Session()
        self.http.headers["X-Session-Id"] = self.http.post(f"{url}/session", timeout=5).json()["session_id"]
        self.thread = threading.Thread(target=self.stream, args=[take], daemon=True)
        self.thread.start()

    def stream(self, take):
        while not self.stopped:
            headers = {"Last-Event-ID": self.last} if self.resumes and self.last else {}
            try:
                with self.http.get(f"{self.url}/stream", stream=True, timeout=(5, None), headers=headers) as answer:
                    if answer.status_code == 404:
                        return
                    answer.raise_for_status()
                    self.answer = answer
                    event = {}
                    for line in answer.iter_lines(decode_unicode=True):
                        name, _, value = line.partition(": ")
                        event[name] = value
                        if not line and "data" in event:  # only now it is whole
                            self.last = event["id"]
                            take(event["data"])
                            event = {}
            except Exception:  # of many kinds: the connection broke
                pass
            time.sleep(0.1)

    def break_stream(self):
        self.answer.raw._fp.fp.raw._sock.shutdown(2)

    def send(self, line):
        answer = self.http.post(f"{self.url}/send", data=line.encode(), timeout=(5, 30))
        assert answer.json() == {"ok": True}, answer.text

    def stop(self):
        self.stopped = True
        self.http.delete(f"{self.url}/session", timeout=5).raise_for_status()
        self.thread.join(timeout=10)


class Client:
    """Answers by request id; events by process."""

    def __init__(self, where):
        self.changed, self.answers, self.events = threading.Condition(), {}, {}
        http = where[0].startswith("http")
        self.transport = HttpTransport(where[0], self.take) if http else StdioTransport(where[1:], self.take)
        hello = self.call("handshake/req", agent_id="test", agent_caps=["procs"], auth_token="")
        assert hello["ok"] and hello["accepted_caps"][0]["capability"] == "proc", hello
        self.session = hello["session_id"]

    def take(self, line):
        message = json.loads(line)
        with self.changed:
            if message["type"] == "proc/read/event":
                data = message["data"] if isinstance(message["data"], dict) else json.loads(message["data"])
                self.events.setdefault(message["proc_id"], []).append((message["stream_type"], data))
            else:
                self.answers[message["req_id"]] = message
            self.changed.notify_all()

    def wait(self, condition, what):
        with self.changed:
            assert self.changed.wait_for(condition, 30), f"waited in vain for {what}"

    def send(self, kind, **fields):
        message = {"type": kind, "id": uuid.uuid4().hex, "version": "1.0", "ts": time.time(), **fields}
        self.transport.send(json.dumps(message, ensure_ascii=False))
        return message["id"]

    def call(self, kind, **fields):
        request = self.send(kind, **fields)
        self.wait(lambda: request in self.answers, f"the answer to {kind}")
        answer = self.answers.pop(request)
        assert answer["type"] != "error", answer
        return answer

    def spawn(self, *cmd, **fields):
        answer = self.call("proc/spawn/req", session_id=self.session, cmd=list(cmd), **fields)
        assert answer["ok"], answer
        return answer["proc_id"]

    def text(self, proc):
        return "".join(data.get("text", "") for _, data in self.events.get(proc, []))

    def end(self, proc):
        def is_over():
            return proc in self.events and (self.events[proc][-1][0] == "killed" or "code" in self.events[proc][-1][1])
        self.wait(is_over, "the end of a process")
        return self.events[proc][-1]


def lines(client):
    proc = client.spawn("seq", "20000")
    assert client.end(proc) == ("stdout", {"code": 0})
    assert client.text(proc) == "".join(f"{n}\n" for n in range(1, 20001))


def write_and_eof(client):
    proc, text = client.spawn("cat"), "é≤\u2028\u0085 and more\n"
    client.send("proc/write/req", proc_id=proc, data=text, eof=True)  # the SDK does not wait for this answer
    assert client.end(proc) == ("stdout", {"code": 0}) and client.text(proc) == text, client.text(proc)


def prompt_and_kill(client):
    proc = client.spawn("python3", "-i")
    client.wait(lambda: ">>> " in client.text(proc), "a prompt")
    client.send("proc/write/req", proc_id=proc, data="print(6 * 7)\n", eof=False)
    client.wait(lambda: "42\n" in client.text(proc), "what python says")
    killed = client.call("proc/kill/req", proc_id=proc, signal="SIGTERM")
    assert (killed["ok"], killed["state"]) == (True, "killed") and client.end(proc) == ("killed", {})
    assert client.call("proc/status/req", proc_id=proc)["status"] == "killed"


def poll_until_it_is_over(client):
    """As the SDK's example does: polls, kills what has ended, and asks again."""
    proc = client.spawn("bash", "-c", "echo 1; sleep 0.1; exit 3")
    client.end(proc)
    assert client.call("proc/status/req", proc_id=proc)["error"] == "exit code 3"
    assert client.call("proc/kill/req", proc_id=proc, signal="SIGTERM")["ok"] is False
    assert client.call("proc/status/req", proc_id=proc)["status"] == "failed"


def refusals(client):
    refused = client.call("proc/spawn/req", cmd=["no-such-program"])
    assert not refused["ok"] and "not allowed" in refused["error"], refused


def broken_streams(client):
    if not hasattr(client.transport, "break_stream"):
        return
    proc = client.spawn("bash", "-c", "for n in $(seq 300); do seq $n; done; read x")
    for part in range(3):
        client.wait(lambda: client.text(proc).count("\n") > part * 10000, "some output")
        client.transport.break_stream()
    client.send("proc/write/req", proc_id=proc, data="\n", eof=True)
    client.end(proc)
    assert client.text(proc) == "".join(f"{n}\n" for last in range(1, 301) for n in range(1, last + 1)), "lost or doubled"


def stop(client):
    client.spawn("bash", "-c", "trap '' TERM; while :; do sleep 3641; done")
    client.transport.stop()


def many_at_once(where, count=8):
    faults = []

    def one():
        try:
            client = Client(where)
            lines(client)
            write_and_eof(client)
            client.transport.stop()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


def main(where):
    failed, client = False, Client(where)
    flows = [lines, write_and_eof, prompt_and_kill, poll_until_it_is_over, refusals, broken_streams, stop]
    for name, play in [(flow.__name__, lambda flow=flow: flow(client)) for flow in flows] + [("many_at_once", lambda: many_at_once(where))]:
        try:
            play()
            print(f"ok {name}", flush=True)
        except Exception as fault:
            failed = True
            print(f"FAILED {name}: {fault!r}", flush=True)
    sys.exit(failed)


main(sys.argv[1:])
