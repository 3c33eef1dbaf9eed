#!/usr/bin/env python3
"""A small host for A2E's process capability, in the Python standard library alone (3.11 or later, on a Unix system).

Run it, and type a request:

    $ python3 minimal_host.py
    {"type":"proc/spawn/req","id":"1","cmd":["bash","-c","echo hello"]}

Test it, in the folder above this one:

    $ a2e-proc conform --host "python3 examples/minimal_host.py" --profile profile/minimal.json

All of it runs in one thread, so there are no locks: what stands between two `await`s happens at once. R1 to R26 are the rulings
of ERRATA.md. It follows them but for three: it refuses no variables (R9), an agent that does not read stops all of it (R18), and
output has no cap (R20). `profile/minimal.json` says the same to a runner.
"""
import argparse, asyncio, base64, codecs, contextlib, hmac, json, os, re, shlex, shutil, subprocess, sys, time, uuid
from signal import SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM

MAX_LINE, MAX_PIECE, MAX_STDIN = 8 << 20, 1 << 16, 1 << 20  # bytes of a line (R1), of an event (R15), that wait to be written (R21)

# Python would take NaN, and no numbers of thousands of digits; JSON has it the other way round. And JSON nests without an end:
# the scanner that is written in Python takes 30,000 levels, the faster one in C far fewer.
DECODER = json.JSONDecoder(parse_constant=int, parse_int=lambda s: int(s) if len(s) < 300 else float(s))
DECODER.scan_once = json.scanner.py_make_scanner(DECODER)
sys.setrecursionlimit(100_000)


# What a request may hold: for each field its default, and a test. A text has no half characters, which JSON can hold.
def text(v): return isinstance(v, str) and not re.search("[\ud800-\udfff]", v)
def texts(v): return isinstance(v, list) and len(v) <= 100_000 and all(map(text, v))
def variables(v): return isinstance(v, dict) and len(v) <= 100_000 and all(map(text, [*v, *v.values()]))
def number(v): return isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < float("inf")
def whole(v): return number(v) and 0 <= v < 1 << 31 and v == int(v)

FIELDS = {
    "handshake/req": {"agent_id": ("", text), "agent_caps": ([], texts), "auth_token": ("", text)},
    "ping": {},
    "shutdown": {"timeout": (10, lambda v: number(v) and v >= 0)},
    "proc/spawn/req": {"session_id": ("", text), "cmd": ([], texts), "cwd": ("", text), "env": ({}, variables),
                       "stdin_mode": ("pipe", lambda v: v in ("pipe", "null")), "timeout": (None, whole)},
    "proc/write/req": {"proc_id": ("", text), "data": ("", text), "eof": (False, lambda v: isinstance(v, bool)),
                       "encoding": ("", lambda v: v in ("", "utf-8", "utf8", "base64"))},
    "proc/kill/req": {"proc_id": ("", text), "signal": ("SIGTERM", text)},
    "proc/status/req": {"proc_id": ("", text)},
}


class Bad(Exception):
    """A line that gets an `error` message: its code, and words."""


def compact(value): return json.dumps(value, separators=(",", ":"))
def later(seconds, action, *args): return asyncio.get_running_loop().call_later(seconds, action, *args)


def anyone_in(group):
    """Whether a process group has members beside its leader. Where there is no /proc, it is taken as empty."""
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.exists("/proc/self/stat") else []):
        with contextlib.suppress(OSError):  # it may end meanwhile
            state, _, its_group = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[:3]
            if int(its_group) == group != int(pid) and state not in "ZX":
                return True
    return False


class Proc:
    """A process, from its spawn to its terminal event, and what is remembered of it."""

    def __init__(self, host, req_id, cmd, program, cwd, env, stdin_mode, limit):
        # It leads a group of its own, so that a signal reaches its children too.
        self.popen = subprocess.Popen(cmd, executable=program, cwd=cwd or None, env=env, process_group=0, bufsize=0,
                                      stdin=subprocess.PIPE if stdin_mode == "pipe" else subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.id, self.pid, self.started_at, self.status, self.code = uuid.uuid4().hex, self.popen.pid, time.time(), "running", None
        self.host, self.req_id, self.cmd, self.limit, self.gone = host, req_id, cmd, limit, asyncio.Event()
        self.asked, self.interrupted, self.given_up, self.over, self.kills = "", False, False, False, []
        self.input, self.writes, self.input_ends = asyncio.Queue(), {}, stdin_mode == "null"

    async def live(self):
        """All its life. At the end: the rest of the output, then the answers that have waited, then the terminal event."""
        pumps = [asyncio.create_task(self.pump("stdout", self.popen.stdout)), asyncio.create_task(self.pump("stderr", self.popen.stderr))]
        feed = asyncio.create_task(self.feed())
        timer = self.limit and later(self.limit, self.end, "timedout")
        await self.gone.wait()
        if timer:
            timer.cancel()
        while self.asked and not self.given_up and anyone_in(self.pid):
            await asyncio.sleep(0.02)  # the rest of the group has its time to end too
        self.over = True
        await asyncio.wait(pumps, timeout=0.25)  # R17: others that hold the pipes are not heard for ever
        for task in (*pumps, feed):
            task.cancel()
        await asyncio.wait([*pumps, feed])
        self.signal(SIGKILL)
        self.popen.wait()
        interrupted = self.interrupted and self.code == -SIGINT
        self.status = self.asked or ("killed" if interrupted else "failed" if self.code else "completed")
        for req_id in list(self.writes):
            self.answer_write(req_id, "proc_dead: the process has ended")
        for req_id in list(self.kills):
            self.answer_kill(req_id)
        if self.status in ("killed", "timedout"):
            self.event("killed", {})
        else:
            self.event("stderr" if self.code else "stdout", {"code": self.code})
        self.host.ended(self)

    def look(self):
        """Notes whether it has ended. It stays a zombie meanwhile, so that the number of its group is not used for another."""
        if self.code is None and (end := os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            self.code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
            self.gone.set()

    def event(self, stream_type, payload):
        self.host.send("proc/read/event", proc_id=self.id, stream_type=stream_type, data=compact(payload), req_id=self.req_id)

    async def pump(self, name, pipe):
        """Makes events of what the process writes, one of each line, with its newline."""
        reader, rest, late = asyncio.StreamReader(), b"", 0
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while late < 256 << 10:
                try:
                    data = await asyncio.wait_for(reader.read(1 << 16), 0.025 if rest else None)
                except TimeoutError:
                    # A prompt has no newline and has to be seen all the same: what nothing follows soon is sent as it is.
                    rest = self.tell(name, rest, partial=True)
                    continue
                if not data:
                    break
                late += len(data) if self.over else 0
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.tell(name, line + b"\n")
                if len(rest) > MAX_PIECE:
                    rest = self.tell(name, rest, partial=True)
        finally:
            self.tell(name, rest)
            transport.close()

    def tell(self, name, data, partial=False):
        """Sends bytes, in pieces that end with a whole character, and returns the beginning of one that may be left."""
        while data:
            piece = data[:MAX_PIECE]
            if partial or len(data) > MAX_PIECE:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                decoder.decode(piece)
                piece = piece[:len(piece) - len(decoder.getstate()[0])]
            if not piece:
                break
            words = piece.decode("utf-8", "replace")
            exact = {} if words.encode() == piece else {"base64": base64.b64encode(piece).decode()}
            self.event(name, {"text": words, **exact})
            data = data[len(piece):]
        return data

    async def feed(self):
        """Writes what was asked for. It may take long until the process reads."""
        if not (stdin := self.popen.stdin):
            return
        with stdin:
            os.set_blocking(stdin.fileno(), False)
            eof = False
            while not eof:
                req_id, data, eof = await self.input.get()
                try:
                    while data:
                        data = data[await self.write(stdin.fileno(), data):]
                    self.answer_write(req_id)
                except BrokenPipeError:
                    self.input_ends = eof = True
                    # If it has closed its input because it ends, this is cancelled here, and the answers come at the end.
                    await asyncio.sleep(0.1)
                    for req_id in list(self.writes):
                        self.answer_write(req_id, "stdin_closed: the process has closed its input")

    async def write(self, pipe, data):
        with contextlib.suppress(BlockingIOError):
            return os.write(pipe, data)
        room, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_writer(pipe, room.set)
        try:
            await room.wait()
        finally:
            loop.remove_writer(pipe)
        return 0

    def answer_write(self, req_id, error=""):
        self.writes.pop(req_id, None)
        if req_id:  # the end of the session closes the input too, and asks for no answer
            self.host.send("proc/write/resp", req_id=req_id, proc_id=self.id, ok=not error, pid=self.pid, error=error)

    def signal(self, number):
        """To the whole group, and to a leader that has left it."""
        self.look()
        with contextlib.suppress(ProcessLookupError):
            if not self.gone.is_set() and os.getpgid(self.pid) != self.pid:
                os.kill(self.pid, number)
            os.killpg(self.pid, number)

    def end(self, why, at_once=False):
        """Asks for its end: by SIGTERM, and SIGKILL later, or by SIGKILL at once. Who asks first gives the status (R23)."""
        if self.status != "running":
            return
        self.look()
        again, self.asked = self.asked, self.asked or ("" if self.gone.is_set() else why)
        if at_once:
            self.signal(SIGKILL)
            later(0.2, setattr, self, "given_up", True)
        elif not again:
            self.signal(SIGTERM)
            self.signal(SIGCONT)  # so that a stopped process can act on it
            later(self.host.options.kill_grace, self.end, why, True)

    def answer_kill(self, req_id):
        if req_id in self.kills:
            self.kills.remove(req_id)
            self.host.send("proc/kill/resp", req_id=req_id, ok=True, state=self.status)

    def about(self):
        state = {"running": "running", "failed": "crashed", "timedout": "timedout"}.get(self.status, "stopped")
        return {"proc_id": self.id, "cmd": shlex.join(self.cmd)[:1024], "state": state, "pid": self.pid,
                "exit_code": None if state == "running" else self.code, "started_at": self.started_at}


class Host:
    def __init__(self, options):
        self.options, self.token, self.started = options, os.environ.pop("A2E_AUTH_TOKEN", ""), time.monotonic()
        self.session, self.shaken, self.ending, self.exit_code = "", False, False, 0
        self.procs, self.past, self.tasks = {}, [], set()
        # The watchdog is told of each start, and of each end as -N. When this host is gone, it kills what is left.
        code = "import os,sys\ns=set()\nfor l in sys.stdin: n=int(l); s.add(n) if n>0 else s.remove(-n)\nfor n in s: os.killpg(n,9)"
        self.watchdog = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0)

    def task(self, coroutine):
        self.tasks.add(task := asyncio.create_task(coroutine))  # or it might be thrown away while it runs
        task.add_done_callback(self.tasks.discard)

    async def run(self):
        loop, read = asyncio.get_running_loop(), sys.stdin.buffer.readline
        loop.add_signal_handler(SIGCHLD, lambda: [proc.look() for proc in self.running()])
        for number in (SIGTERM, SIGINT, SIGHUP):
            loop.add_signal_handler(number, lambda: self.task(self.end_session(0, 1.0, 1.6)))
        while line := await loop.run_in_executor(None, read, MAX_LINE + 1):
            too_long = len(line) > MAX_LINE and not line.endswith(b"\n")
            self.line(line, too_long)
            while too_long and line and not line.endswith(b"\n"):
                line = await loop.run_in_executor(None, read, MAX_LINE)
        await self.end_session(1.0, 2.0, 2.6)

    async def end_session(self, term_at, kill_at, give_up_at):
        """Ends all processes, and this host (R8). Of several causes each is a task, and whose time comes first acts first."""
        self.ending = True
        for proc in self.running():
            proc.input.put_nowait(("", b"", True))
        await self.wait_for_all(term_at)
        for proc in self.running():
            proc.end("killed")
        await self.wait_for_all(kill_at - term_at)
        for proc in self.running():
            proc.end("killed", at_once=True)
        await self.wait_for_all(give_up_at - kill_at)
        os._exit(self.exit_code)

    async def wait_for_all(self, seconds):
        until = time.monotonic() + seconds
        while self.running() and time.monotonic() < until:
            await asyncio.sleep(0.01)

    def running(self):
        return [proc for proc in self.procs.values() if proc.status == "running"]

    def ended(self, proc):
        """Of the ended processes, the last thousand are remembered."""
        self.tell_watchdog(-proc.pid)
        self.past.append(proc.id)
        if len(self.past) > 1000:
            del self.procs[self.past.pop(0)]

    def tell_watchdog(self, number):
        with contextlib.suppress(OSError):
            self.watchdog.stdin.write(b"%d\n" % number)

    def send(self, kind, **fields):
        line = compact({"type": kind, "id": uuid.uuid4().hex, "version": "1.0", "ts": time.time(), **fields})
        try:
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()
        except OSError:
            if not self.exit_code:
                self.exit_code = 1
                self.task(self.end_session(0, 1.0, 1.6))

    def line(self, line, too_long):
        if self.ending or not line.strip(b" \t\r\n"):
            return
        req_id = kind = ""
        try:
            if too_long:
                raise Bad("parse_error", "the line is too long")
            try:
                message = DECODER.decode(line.decode())
            except (ValueError, RecursionError) as e:
                raise Bad("parse_error", f"the line is not JSON: {e}")
            if not isinstance(message, dict):
                raise Bad("parse_error", "the line is not an object")
            req_id, kind = (message[key] if text(message.get(key)) else "" for key in ("id", "type"))
            if kind.startswith("proc/") and self.token and not self.shaken:
                raise Bad("unauthorized", "a handshake with a valid token comes first")
            if kind not in FIELDS:
                raise Bad("invalid_message", "type is absent, or none that agents send")
            if not 1 <= len(req_id.encode()) <= 1024:
                raise Bad("schema_violation", "id must be a text of 1 to 1,024 bytes")
            version = message.get("version", message.get("a2e", "1.0"))
            if not number(message.get("ts", 0)) or not text(version):
                raise Bad("schema_violation", "ts must be a number, and version a text")
            if not re.fullmatch(r"1(\.[0-9]+)*", version):
                raise Bad("version_mismatch", "this host speaks version 1.0")
            values = {name: message.get(name, default) for name, (default, _) in FIELDS[kind].items()}
            for name, (_, test) in FIELDS[kind].items():
                if name in message and not test(values[name]):
                    raise Bad("schema_violation", f"{name} has a wrong value")
            getattr(self, kind.replace("/", "_"))(req_id, **values)
        except Bad as bad:
            self.send("error", req_id=req_id, code=bad.args[0], message=bad.args[1], detail={}, retryable=False,
                      capability_name="proc" if kind.startswith("proc/") else "")

    def handshake_req(self, req_id, agent_id, agent_caps, auth_token):
        reason, caps, o = "server_error" if self.shaken else "", [], self.options
        if self.token and not hmac.compare_digest(auth_token.encode(), self.token.encode()):
            reason = "auth_failed"
        if not reason:
            self.shaken, self.session = True, self.session or uuid.uuid4().hex
        if not reason and {"proc", "procs"} & set(agent_caps):
            caps = [{"capability": "proc", "enabled": True, "metadata": {
                "name": "proc", "type": "proc", "priority": 5, "exclusive": False, "allowed_commands": o.allow,
                "max_procs": o.max_procs, "default_timeout": o.default_timeout, "max_timeout": o.max_timeout, "kill_grace": o.kill_grace,
                "max_output_bytes": 0, "max_line_bytes": MAX_LINE, "max_stdin_bytes": MAX_STDIN, "denied_env": []}}]
        self.send("handshake/resp", req_id=req_id, session_id="" if reason else self.session, accepted_caps=caps, max_parallel=4,
                  ok=not reason, reason=reason)

    def ping(self, req_id):
        self.send("pong", req_id=req_id, uptime_seconds=time.monotonic() - self.started)

    def shutdown(self, _, timeout):
        self.ending, give_up = True, max(timeout, 0.5)
        self.task(self.end_session(0, give_up - min(0.6, give_up / 2) if timeout else 0, give_up))

    def proc_spawn_req(self, req_id, session_id, cmd, cwd, env, stdin_mode, timeout):
        if session_id and self.session not in ("", session_id):
            raise Bad("unauthorized", "this connection is another session")
        self.session = self.session or session_id
        o, strings = self.options, [*cmd, cwd, *env, *env.values()]
        limit = int(o.default_timeout if timeout is None else timeout)
        if o.max_timeout:
            limit = min(limit or o.max_timeout, o.max_timeout)
        if not cmd:
            error = "empty_command: Empty command"
        elif cmd[0] not in o.allow:
            error = f"command_not_allowed: {cmd[0][:50]!r} is not allowed"
        elif any("\0" in s for s in strings) or any(not name or "=" in name for name in env):
            error = "invalid_argument: a NUL, or a name that no variable can have"
        elif len(self.running()) >= o.max_procs:
            error = f"proc_limit: {o.max_procs} processes run already"
        elif cwd and not (os.path.isdir(cwd) and os.access(cwd, os.X_OK)):
            error = "cwd_not_found: directory not found"
        elif not (program := shutil.which(cmd[0])):  # where this host looks, whatever PATH the request has
            error = "program_not_found: program not found"
        else:
            try:
                env = {**({} if o.inherit_env == "none" else os.environ), **env}
                proc = Proc(self, req_id, cmd, os.path.abspath(program), cwd, env, stdin_mode, limit)
                self.procs[proc.id] = proc
                self.tell_watchdog(proc.pid)
                self.send("proc/spawn/resp", req_id=req_id, proc_id=proc.id, ok=True, pid=proc.pid, error="")
                return self.task(proc.live())  # only now, so that no output comes before the answer
            except OSError as e:
                error = f"spawn_failed: {e.strerror}"
        self.send("proc/spawn/resp", req_id=req_id, proc_id="", ok=False, error=error)

    def proc_write_req(self, req_id, proc_id, data, eof, encoding):
        try:
            data = base64.b64decode(data, validate=True) if encoding == "base64" else data.encode()
        except ValueError:
            raise Bad("schema_violation", "data is not base64")
        proc = self.procs.get(proc_id)
        if not proc:
            error = "unknown_proc: process not found"
            self.send("proc/write/resp", req_id=req_id, proc_id=proc_id, ok=False, pid=0, error=error)
        elif proc.status != "running":
            proc.answer_write(req_id, "proc_dead: the process has ended")
        elif proc.input_ends:
            proc.answer_write(req_id, "stdin_closed: the input has ended")
        elif len(data) > MAX_STDIN or proc.writes and sum(proc.writes.values()) + len(data) + 2048 > MAX_STDIN:
            proc.answer_write(req_id, "stdin_full: the process does not read")
        else:
            proc.writes[req_id], proc.input_ends = len(data) + 2048, eof
            proc.input.put_nowait((req_id, data, eof))

    def proc_kill_req(self, req_id, proc_id, signal):
        proc = self.procs.get(proc_id)
        state, error = (proc.status, "") if proc else ("not_found", "unknown_proc: process not found")
        if proc and state != "running":
            error = "proc_dead: the process has ended"
        elif proc and signal not in ("SIGTERM", "SIGKILL", "SIGINT"):
            error = "invalid_signal: use SIGTERM, SIGKILL or SIGINT"
        if error:
            return self.send("proc/kill/resp", req_id=req_id, ok=False, state=state, error=error)
        proc.kills.append(req_id)  # answered at the end, when it is known how it ended
        if signal == "SIGINT":
            proc.interrupted = True
            proc.signal(SIGINT)
            later(0.2, proc.answer_kill, req_id)  # it may go on, and must not be waited for then
        else:
            proc.end("killed", at_once=signal == "SIGKILL")
        if len(proc.kills) > 1024:
            proc.answer_kill(req_id)

    def proc_status_req(self, req_id, proc_id):
        procs = [proc for proc in self.procs.values() if proc_id in ("", proc.id)]
        status, error = "running" if any(proc.status == "running" for proc in procs) else "completed", ""
        if proc_id:
            status = procs[0].status if procs else "not_found"
            error = {"not_found": "unknown_proc: process not found", "failed": f"exit code {procs and procs[0].code}",
                     "timedout": f"timeout of {procs and procs[0].limit} s"}.get(status, "")
        self.send("proc/status/resp", req_id=req_id, proc_id=proc_id, status=status, error=error, procs=[proc.about() for proc in procs])


parser = argparse.ArgumentParser(description="A small A2E host for processes, on standard input and output.")
parser.add_argument("--allow", action="append", metavar="NAME", help="a program; given once or more, replaces python3, bash and ls")
parser.add_argument("--max-procs", type=int, default=64, metavar="N")
parser.add_argument("--default-timeout", type=int, default=0, metavar="S")
parser.add_argument("--max-timeout", type=int, default=0, metavar="S")
parser.add_argument("--kill-grace", type=float, default=2.0, metavar="S")
parser.add_argument("--inherit-env", choices=["all", "none"], default="all")
options = parser.parse_args()
options.allow = options.allow or ["python3", "bash", "ls"]
asyncio.run(Host(options).run())
