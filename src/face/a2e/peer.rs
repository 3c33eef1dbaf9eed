//! The requests of one agent, one after the other: wire → admission → engine → answer. Runs on the thread `requests`.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Options;
use super::admission::Admission;
use super::outbox::Outbox;
use super::trail::{Answer, Open, Received, Trail};
use crate::engine::{Gate, Host, MAX_QUEUED, Reply, Session, SpawnRequest};
use crate::log::{Level, Log};
use crate::model::{Refusal, Signal};
use crate::transport::{Hangup, Line, LineReader};
use crate::wire::code::{self, ErrorCode};
use crate::wire::decode::{self, Rejection};
use crate::wire::message::{
    Capability, ErrorMessage, HandshakeResp, KillResp, Metadata, Pong, SpawnResp, StatusResp, WriteResp,
};
use crate::wire::request::{Body, Handshake, Proc, Request, Spawn, Write};

/// One agent, as its host sees it.
pub struct Peer {
    session: Arc<Session>,
    outbox: Outbox,
    admission: Admission,
    capability: Capability,
    started: Instant,
    closed: Arc<AtomicBool>,
    admitted: Arc<AtomicBool>,
    log: Log,
    trail: Trail,
}

/// The one answer that a request is owed. Giving it consumes this; if nobody does, the agent is told so.
struct Responder {
    req_id: Option<String>,
    outbox: Outbox,
    entry: Open,
}

impl Responder {
    fn answer<M: Answer>(mut self, message: impl FnOnce(String) -> M) {
        if let Some(req_id) = self.req_id.take() {
            let message = message(req_id);
            self.entry.answered(&message, self.outbox.put(&message));
        }
    }

    fn answer_with_gate<M: Answer>(mut self, gate: Gate, message: impl FnOnce(String) -> M) {
        if let Some(req_id) = self.req_id.take() {
            let message = message(req_id);
            self.entry.answered(&message, self.outbox.put_with_gate(&message, gate));
        }
    }

    /// The request has been done; a message of its kind has no answer.
    fn keep_silent(mut self, outcome: &str) {
        self.req_id = None;
        self.entry.done(outcome);
    }

    fn deny(self, words: String) {
        self.answer(|req_id| ErrorMessage::new(req_id, ErrorCode::Unauthorized, words, true));
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(req_id) = self.req_id.take() {
            let words = "the host lost this request while it served it".into();
            let message = ErrorMessage::new(req_id, ErrorCode::RuntimeError, words, true);
            self.entry.answered(&message, self.outbox.put(&message));
        }
    }
}

impl Peer {
    /// An agent that has just connected.
    pub fn new(host: &Host, session: Arc<Session>, outbox: Outbox, options: &Options) -> Self {
        Self {
            session,
            outbox,
            admission: Admission::new(options.auth_token.clone()),
            capability: capability(host, options),
            started: Instant::now(),
            closed: Arc::default(),
            admitted: Arc::default(),
            log: options.log.clone(),
            trail: Trail::new(&options.audit),
        }
    }

    /// Once it is set, no more requests are taken.
    pub fn closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closed)
    }

    /// It is set once there has been a good handshake.
    pub fn admitted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.admitted)
    }

    /// What is told of each request.
    pub fn trail(&self) -> Trail {
        self.trail.clone()
    }

    /// Serves requests until the input ends. After a shutdown, or when the session is closed, it only watches for that.
    ///
    /// An agent that does not take its answers is still noticed when it goes, where the transport can tell (R8).
    pub fn run(
        &mut self,
        input: impl Read,
        hangup: Option<Hangup>,
        max_line_bytes: usize,
        shut_down: impl Fn(Duration),
    ) {
        let mut lines = LineReader::new(input, max_line_bytes);
        let has_gone = || hangup.as_ref().is_some_and(Hangup::is_seen);
        while self.outbox.wait_for_room(has_gone) {
            // An input that cannot be read has ended.
            let Ok(Some(line)) = lines.next_line() else { break };
            if self.closed.load(Ordering::Acquire) {
                continue;
            }
            let at = Instant::now();
            let decoded = match line {
                Line::Whole(line) => decode::decode(line),
                Line::TooLong => Some(Err(decode::too_long(max_line_bytes))),
            };
            let received = Received { at, bytes: lines.length() };
            match decoded {
                None => {}
                Some(Err(rejection)) => self.reject(received, rejection),
                Some(Ok(request)) => {
                    if let Some(timeout) = self.handle(received, request) {
                        self.closed.store(true, Ordering::Release);
                        shut_down(timeout);
                    }
                }
            }
        }
    }

    fn reject(&self, received: Received, mut rejection: Rejection) {
        self.log.say(Level::Debug, format_args!("{:?}: {}", rejection.code, rejection.message));
        // Whoever has not shown a token is told nothing else about what it sent (R6).
        if let (true, Err(words)) = (rejection.is_proc, self.admission.check()) {
            (rejection.code, rejection.message) = (ErrorCode::Unauthorized, words);
        }
        let entry = self.trail.rejection(received, &rejection);
        let message = ErrorMessage::from(rejection);
        entry.answered(&message, self.outbox.put(&message));
    }

    /// Serves one request. The timeout of a shutdown is returned; it has no answer.
    fn handle(&mut self, received: Received, request: Request) -> Option<Duration> {
        let entry = self.trail.request(received, &request);
        let Request { id, body, .. } = request;
        self.log.say(Level::Debug, format_args!("{id:?}: {}", body.name()));
        let responder = Responder { req_id: Some(id), outbox: self.outbox.clone(), entry };
        match body {
            Body::Shutdown { timeout } => {
                responder.keep_silent("shutdown");
                // Longer than a span of time can be is for ever.
                return Some(Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX));
            }
            Body::Handshake(handshake) => self.handshake(responder, &handshake),
            Body::Ping => {
                let uptime_seconds = self.started.elapsed().as_secs_f64();
                responder.answer(|req_id| Pong { req_id, uptime_seconds });
            }
            Body::Proc(request) => match self.admit(&request) {
                Ok(()) => self.serve(responder, request),
                Err(words) => responder.deny(words),
            },
        }
        None
    }

    fn serve(&self, responder: Responder, request: Proc) {
        match request {
            Proc::Spawn(spawn) => self.spawn(responder, spawn),
            Proc::Write(write) => self.write(responder, write),
            Proc::Kill { proc_id, signal } => self.kill(responder, &proc_id, signal),
            Proc::Status { proc_id } => self.status(responder, proc_id),
        }
    }

    fn admit(&mut self, request: &Proc) -> Result<(), String> {
        let admitted = match request {
            Proc::Spawn(spawn) => self.admission.admit_spawn(&spawn.session_id),
            _ => self.admission.admit(),
        };
        self.trail.name(self.admission.session_id());
        admitted
    }

    fn handshake(&mut self, responder: Responder, handshake: &Handshake) {
        let opened = self.admission.handshake(&handshake.auth_token);
        self.trail.name(self.admission.session_id());
        self.log.say(Level::Info, format_args!("handshake of {:?}: {opened:?}", handshake.agent_id));
        self.admitted.fetch_or(opened.is_ok(), Ordering::AcqRel);
        let names_proc = handshake.agent_caps.iter().any(|cap| cap == "proc" || cap == "procs");
        let accepted_caps = if opened.is_ok() && names_proc { vec![self.capability.clone()] } else { Vec::new() };
        let (ok, session_id, reason) = match opened {
            Ok(id) => (true, id, ""),
            Err(reason) => (false, String::new(), reason),
        };
        responder.answer(|req_id| HandshakeResp {
            req_id,
            session_id,
            accepted_caps,
            max_parallel: 4,
            ok,
            reason: reason.into(),
        });
    }

    fn spawn(&self, responder: Responder, spawn: Spawn) {
        let request = SpawnRequest {
            cmd: spawn.cmd,
            cwd: spawn.cwd,
            env: spawn.env,
            stdin: spawn.stdin_mode,
            timeout: spawn.timeout,
            tag: responder.req_id.clone().unwrap_or_default(),
        };
        match self.session.spawn(&request) {
            Ok(spawned) => {
                let (pid, proc_id) = (spawned.pid, spawned.id.to_string());
                match self.session.launcher(&request.cmd[0]) {
                    [] => self.log.say(Level::Info, format_args!("spawned {:?} as pid {pid}", request.cmd[0])),
                    launcher => {
                        let launcher = launcher.join(" ");
                        self.log.say(
                            Level::Info,
                            format_args!("spawned {:?} as pid {pid} behind {launcher:?}", request.cmd[0]),
                        );
                    }
                }
                responder.answer_with_gate(spawned.gate, |req_id| SpawnResp {
                    req_id,
                    proc_id,
                    ok: true,
                    pid: Some(pid),
                    error: String::new(),
                });
                self.session.make_ready();
            }
            Err(e) => {
                let error = code::not_spawned(&e);
                self.log.say(Level::Info, format_args!("not spawned: {error}"));
                responder.answer(|req_id| SpawnResp { req_id, proc_id: String::new(), ok: false, pid: None, error });
            }
        }
    }

    fn write(&self, responder: Responder, write: Write) {
        let proc_id = write.proc_id.clone();
        let reply = Reply::new(move |answer: crate::engine::WriteAnswer| {
            responder.answer(|req_id| WriteResp {
                req_id,
                proc_id,
                ok: answer.result.is_ok(),
                pid: answer.pid,
                error: answer.result.err().map(|refusal| code::refused(&refusal)).unwrap_or_default(),
            });
        });
        self.session.write(&write.proc_id, write.data, write.eof, reply);
    }

    fn kill(&self, responder: Responder, proc_id: &str, signal: String) {
        let signal = match signal.as_str() {
            "SIGTERM" => Signal::Term,
            "SIGKILL" => Signal::Kill,
            "SIGINT" => Signal::Int,
            _ => {
                let state = self.session.status(proc_id).map_or(code::NOT_FOUND, |report| code::status(report.status));
                let error = Some(code::refused(&Refusal::InvalidSignal { name: signal }));
                return responder.answer(|req_id| KillResp { req_id, ok: false, state, error });
            }
        };
        let reply = Reply::new(move |answer: crate::engine::KillAnswer| {
            responder.answer(|req_id| match answer {
                Ok(status) => KillResp { req_id, ok: true, state: code::status(status), error: None },
                Err(refused) => KillResp {
                    req_id,
                    ok: false,
                    state: refused.status.map_or(code::NOT_FOUND, code::status),
                    error: Some(code::refused(&refused.refusal)),
                },
            });
        });
        self.session.kill(proc_id, signal, reply);
    }

    fn status(&self, responder: Responder, proc_id: String) {
        responder.answer(|req_id| {
            if proc_id.is_empty() {
                return StatusResp::all(req_id, &self.session.status_all());
            }
            match self.session.status(&proc_id) {
                Some(report) => StatusResp::one(req_id, &report),
                None => {
                    let error = code::refused(&Refusal::UnknownProc { id: proc_id.clone() });
                    StatusResp::unknown(req_id, proc_id, error)
                }
            }
        });
    }
}

/// What the host says of itself in a handshake (R6).
fn capability(host: &Host, options: &Options) -> Capability {
    let config = host.config();
    Capability {
        capability: "proc".into(),
        enabled: true,
        metadata: Metadata {
            name: "proc",
            kind: "proc",
            priority: 5,
            exclusive: false,
            allowed_commands: config.allowed.clone(),
            max_procs: config.max_procs,
            default_timeout: config.default_timeout,
            max_timeout: config.max_timeout,
            kill_grace: config.kill_grace.as_secs_f64(),
            max_output_bytes: config.max_output_bytes,
            max_line_bytes: options.max_line_bytes,
            max_stdin_bytes: MAX_QUEUED,
            denied_env: config.denied_env.clone(),
            network_disabled: config.network_disabled,
        },
    }
}
