#!/usr/bin/env python3
"""A small host for A2E's process capability: the Python standard library alone, 3.11 or later, on Linux.

Run it, and type a request: {"type":"proc/spawn/req","id":"1","cmd":["bash","-c","echo hello"]}
Test it, in the folder above: a2e-proc conform --host "python3 examples/minimal_host.py" --profile profile/minimal.json

The main thread serves requests, one by one. Each process has four threads more: two read its output, one writes its
input, and one waits for its end. R1 to R26 are the rulings of ERRATA.md; the profile lists those that hold here.
"""
import base64, codecs, contextlib, json, math, os, re, select, shlex, shutil, sys, threading, time, uuid
from concurrent.futures import ThreadPoolExecutor, wait
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals, signal
from subprocess import DEVNULL, PIPE, Popen

ALLOWED = os.environ.get("A2E_ALLOWED", "python3 bash ls").split()
MAX_PROCS = int(os.environ.get("A2E_MAX_PROCS", 64))
KILL_GRACE = float(os.environ.get("A2E_KILL_GRACE", 2))  # seconds from SIGTERM to SIGKILL
MAX_LINE, MAX_PIECE = 8 << 20, 1 << 16  # bytes of a request (R1), and of an event (R15)
ERRORS = {"failed": "exit code {0.code}", "timedout": "timeout of {0.limit} s", "not_found": "unknown_proc: not found"}
STATES = {"running": "running", "failed": "crashed", "timedout": "timedout"}  # of any other status: "stopped"
# JSON has no NaN, and no limit to digits or to depth. Python differs in all three; its slower scanner goes deep enough.
DECODER = json.JSONDecoder(parse_constant=int, parse_int=lambda text: int(text) if len(text) < 300 else float(text))
DECODER.scan_once = json.scanner.py_make_scanner(DECODER)
sys.setrecursionlimit(100_000)
ENCODER = json.JSONEncoder(separators=(",", ":"))
OUTPUT, THREADS = threading.Lock(), ThreadPoolExecutor(10_000)  # one line is written at a time


def send(kind, **fields):
    line = ENCODER.encode({"type": kind, "id": uuid.uuid4().hex, "version": "1.0", "ts": time.time(), **fields})
    with OUTPUT, contextlib.suppress(OSError):
        print(line, flush=True)


class Refused(Exception):
    """Why a request is not served: a code of ERRATA.md, and words."""


def require(condition, code, words):
    if not condition:
        raise Refused(code, words)


def fits(value, default):
    """Whether a value is of the same kind as a default: a number, a text, a flag, texts, or texts with names."""
    if type(default) is int:
        return type(value) in (int, float) and math.isfinite(value)
    if type(value) is str and re.search("[\ud800-\udfff]", value):  # half a character, which JSON can spell
        return False
    items = [*value, *value.values()] if type(value) is dict else value if type(value) is list else []
    return type(value) is type(default) and len(items) <= 100_000 and all(fits(item, "") for item in items)


class Process:
    """A process, from its spawn to its terminal event, and what is remembered of it. It leads a group of its own."""
    def __init__(self, req_id, limit, cmd, **options):
        self.popen = Popen(cmd, process_group=0, stdout=PIPE, stderr=PIPE, **options)
        self.id, self.pid, self.req_id, self.cmd, self.limit = uuid.uuid4().hex, self.popen.pid, req_id, cmd, limit
        self.started_at, self.lock, self.writer = time.time(), threading.Lock(), ThreadPoolExecutor(1)
        self.status, self.code, self.drained_at, self.asked = "running", None, math.inf, ""  # asked: the status to be

    def event(self, stream, payload):
        send("proc/read/event", proc_id=self.id, stream_type=stream, data=ENCODER.encode(payload), req_id=self.req_id)

    def live(self):
        """Waits for the end, and tells it when all output has been sent (R17)."""
        readers = [THREADS.submit(self.read, name, getattr(self.popen, name)) for name in ("stdout", "stderr")]
        timer = threading.Timer(self.limit or threading.TIMEOUT_MAX, self.end, ["timedout", SIGTERM])
        timer.start()
        # It stays a zombie until `popen.wait`, so that no other group can get the number of its group meanwhile.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        timer.cancel()
        self.drained_at = time.monotonic() + 0.25
        wait(readers)
        self.end(self.asked, SIGKILL)  # for what is left of its group
        with self.lock:
            code = self.code = self.popen.wait()
            self.status = self.asked or ("failed" if code else "completed")
        self.writer.submit(self.write, "", b"", True)
        self.writer.shutdown(wait=False)
        self.event("killed" if self.asked else "stderr" if code else "stdout", {} if self.asked else {"code": code})

    def read(self, name, pipe):
        """Sends output: each line as it is complete, and an unfinished one that nothing follows for 25 ms (R15)."""
        data, at_end = b"", False
        while not at_end:
            out_of_time = time.monotonic() > self.drained_at  # it has ended, and others hold the pipe open (R17)
            ready = bool(select.select([pipe], [], [], 0.025 if data else 0.1)[0])
            new = os.read(pipe.fileno(), MAX_PIECE) if ready else b""
            data, at_end = data + new, out_of_time or (ready and not new)
            while data:
                line_end = data.find(b"\n", 0, MAX_PIECE) + 1
                if not line_end and len(data) < MAX_PIECE and new and not at_end:
                    break  # the rest of the line may follow
                piece = data[:line_end or MAX_PIECE]
                text, size = codecs.utf_8_decode(piece, "replace", at_end and piece == data)
                if not size:
                    break  # the rest of a character may follow (R16)
                exact = {} if text.encode() == piece[:size] else {"base64": base64.b64encode(piece[:size]).decode()}
                self.event(name, {"text": text, **exact})
                data = data[size:]
        pipe.close()

    def write(self, req_id, data, eof):
        """Runs in the thread of the writer. A process that does not read stops this thread, and nothing else."""
        error = ""
        try:
            self.popen.stdin.write(data)
            finish = self.popen.stdin.close if eof else self.popen.stdin.flush
            finish()
        except (AttributeError, ValueError, OSError):  # there is no pipe, it is closed, or nobody reads it
            error = "stdin_closed: the process has no input any more"
        if req_id:  # an end closes the input too, and asks for no answer
            send("proc/write/resp", req_id=req_id, proc_id=self.id, ok=not error, pid=self.pid, error=error)

    def end(self, why, number):
        """Signals its group. What SIGTERM does not end is killed some time later. Who asks first gives the status."""
        with self.lock, contextlib.suppress(ProcessLookupError):  # there is no group any more if it has left it
            if self.status != "running":
                return False
            self.asked = self.asked or why
            if number == SIGTERM:
                threading.Timer(KILL_GRACE, self.end, [why, SIGKILL]).start()
            os.killpg(self.pid, number)
        return True


class Host:
    """A session. A method `on_a_b` serves the requests of type `a/b`; its keywords are their fields and defaults."""
    def __init__(self):
        self.procs, self.id, self.started = {}, uuid.uuid4().hex, time.monotonic()

    def serve(self, line):
        req_id, kind, message = "", "", None
        try:  # the checks come in the order of R4
            with contextlib.suppress(ValueError, RecursionError):
                message = DECODER.decode(line.decode())
            require(type(message) is dict, "parse_error", "the line is no JSON object, or too long")
            req_id, kind = (message[key] if fits(message.get(key), "") else "" for key in ("id", "type"))
            handler = getattr(self, "on_" + kind.replace("/", "_"), None)
            require(handler and "_" not in kind, "invalid_message", "the type is absent, or none that agents send")
            version = message.get("version", message.get("a2e", "1.0"))
            well_formed = 0 < len(req_id.encode()) <= 1024 and fits(version, "") and fits(message.get("ts", 0), 0)
            require(well_formed, "schema_violation", "the id, the version or the ts is wrong")
            require(re.fullmatch(r"1(\.[0-9]+)*", version), "version_mismatch", "this host speaks version 1.0")
            defaults = handler.__kwdefaults__ or {}
            for name, default in defaults.items():
                require(fits(message.get(name, default), default), "schema_violation", f"{name} has a wrong value")
            handler(req_id, **{name: message[name] for name in defaults if name in message})
        except Refused as refused:
            send("error", req_id=req_id, code=refused.args[0], message=refused.args[1], detail={}, retryable=False,
                 capability_name="proc" if kind.startswith("proc/") else "")

    def on_handshake_req(self, req_id, *, agent_id="", agent_caps=[], auth_token=""):
        can = [{"capability": "proc", "enabled": True, "metadata": {}}] if "proc" in agent_caps else []
        send("handshake/resp", req_id=req_id, session_id=self.id, accepted_caps=can, max_parallel=4, ok=True, reason="")

    def on_ping(self, req_id):
        send("pong", req_id=req_id, uptime_seconds=time.monotonic() - self.started)

    def on_shutdown(self, req_id, *, timeout=10):
        self.end()

    def on_proc_spawn_req(self, req_id, *, session_id="", cmd=[], cwd="", env={}, stdin_mode="pipe", timeout=0):
        require(stdin_mode in ("pipe", "null"), "schema_violation", "stdin_mode must be pipe or null")
        require(0 <= timeout < 1 << 31 and timeout % 1 == 0, "schema_violation", "timeout must be whole seconds")
        try:
            require(cmd, "empty_command", "Empty command")
            require(cmd[0] in ALLOWED, "command_not_allowed", "this program is not allowed")
            require("\0" not in "".join([*cmd, cwd, *env, *env.values()]), "invalid_argument", "a text holds a NUL")
            require(all(name and "=" not in name for name in env), "invalid_argument", "no variable can have this name")
            require(len(self.running()) < MAX_PROCS, "proc_limit", f"{MAX_PROCS} processes run already")
            require(not cwd or os.path.isdir(cwd) and os.access(cwd, os.X_OK), "cwd_not_found", "directory not found")
            program = shutil.which(cmd[0])
            require(program, "program_not_found", "program not found")
            proc = Process(req_id, timeout, cmd, executable=os.path.abspath(program), cwd=cwd or None,
                           env={**os.environ, **env}, stdin=PIPE if stdin_mode == "pipe" else DEVNULL)
        except (Refused, OSError) as error:
            code, words = error.args if type(error) is Refused else ("spawn_failed", error.strerror)
            send("proc/spawn/resp", req_id=req_id, proc_id="", ok=False, error=f"{code}: {words}")
        else:
            send("proc/spawn/resp", req_id=req_id, proc_id=proc.id, ok=True, pid=proc.pid, error="")
            proc.life = THREADS.submit(proc.live)  # only now, so that no event comes before the answer (R13)
            self.procs[proc.id] = proc

    def on_proc_write_req(self, req_id, *, proc_id="", data="", eof=False):
        proc, error = self.procs.get(proc_id), "unknown_proc: process not found"
        if proc:
            with contextlib.suppress(RuntimeError):
                return proc.writer.submit(proc.write, req_id, data.encode(), eof)
            error = "proc_dead: the process has ended"  # and its writer with it
        send("proc/write/resp", req_id=req_id, proc_id=proc_id, ok=False, pid=proc.pid if proc else 0, error=error)

    def on_proc_kill_req(self, req_id, *, proc_id="", signal="SIGTERM"):
        proc = self.procs.get(proc_id)
        ok = bool(proc) and signal in ("SIGTERM", "SIGKILL", "SIGINT") and proc.end("killed", Signals[signal])
        send("proc/kill/resp", req_id=req_id, ok=ok, state="killed" if ok else proc.status if proc else "not_found")

    def on_proc_status_req(self, req_id, *, proc_id=""):
        procs = [proc for proc in self.procs.values() if proc_id in ("", proc.id)]
        status_of_all = "running" if self.running() else "completed"  # R25
        status = status_of_all if not proc_id else procs[0].status if procs else "not_found"
        error = ERRORS.get(status, "").format(*procs)
        send("proc/status/resp", req_id=req_id, proc_id=proc_id, status=status, error=error, procs=[
            {"proc_id": proc.id, "cmd": shlex.join(proc.cmd)[:1024], "state": STATES.get(proc.status, "stopped"),
             "pid": proc.pid, "exit_code": proc.code, "started_at": proc.started_at} for proc in procs])

    def running(self):
        return [proc for proc in list(self.procs.values()) if proc.status == "running"]

    def end(self):
        """Closes all inputs, and kills what has not ended a second later."""
        procs = self.running()
        for proc in procs:
            self.on_proc_write_req("", proc_id=proc.id, eof=True)
        wait([proc.life for proc in procs], timeout=1)
        for proc in procs:
            proc.end("killed", SIGKILL)
        wait([proc.life for proc in procs], timeout=1)
        os._exit(0)


host = Host()
for number in (SIGTERM, SIGINT, SIGHUP):
    signal(number, lambda *_: threading.Thread(target=host.end).start())
while line := sys.stdin.buffer.readline(MAX_LINE + 1):
    if line.strip(b" \t\r\n"):
        host.serve(line if len(line) <= MAX_LINE or line.endswith(b"\n") else b"")
    while len(line) >= MAX_LINE and not line.endswith(b"\n"):  # the rest of a line that is too long (R1)
        line = sys.stdin.buffer.readline(MAX_LINE)
host.end()
