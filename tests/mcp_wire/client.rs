//! A client that says whatever it is told to, and checks what it hears.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use a2e_proc::crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use a2e_proc::face::mcp::{Ended, Opened, Server, serve};
use a2e_proc::transport::Connection;
use serde_json::{Value, json};

use crate::schema;
use crate::toolbox::{Hand, Strange, TOOLS};

/// Long enough for anything that happens at all.
const LONG: Duration = Duration::from_secs(30);

/// One client, and the server that it speaks to.
pub struct Client {
    to: Option<Box<dyn Write + Send>>,
    from: Receiver<String>,
    pub stop: Sender<()>,
    served: Receiver<io::Result<Ended>>,
    /// The methods of what was asked, and whether in the modern way, by the ids' JSON.
    asked: HashMap<String, (String, bool)>,
}

/// Serves a toolbox: the client, the toolbox's other side, and how often the desk has been opened.
pub fn start() -> (Client, Hand, Arc<AtomicUsize>) {
    let (toolbox, hand) = Strange::new();
    let toolbox = Arc::new(toolbox);
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let client = start_with(move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Opened::Here(toolbox.clone()))
    });
    (client, hand, opened)
}

/// Serves what `open` opens.
pub fn start_with(open: impl Fn() -> Result<Opened, String> + Send + Sync + 'static) -> Client {
    let (here, there) = Connection::pair().unwrap();
    let (stop, stopped) = bounded(1);
    let served = serve_on(here, open, &stopped);
    let (says, from) = unbounded();
    let mut input = BufReader::new(there.input);
    thread::spawn(move || {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            assert_eq!(line.pop(), Some(b'\n'), "half a line");
            let _ = says.send(String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
    });
    Client { to: Some(there.output), from, stop, served, asked: HashMap::new() }
}

/// Serves a connection on a thread of its own, and tells how it has ended.
pub fn serve_on<T: Send + 'static>(
    connection: Connection,
    open: impl Fn() -> Result<Opened, String> + Send + Sync + 'static,
    stop: &Receiver<T>,
) -> Receiver<io::Result<Ended>> {
    let server = Arc::new(Server { tools: &TOOLS, instructions: "Be kind.", open: Box::new(open) });
    let (says, served) = bounded(1);
    let stop = stop.clone();
    thread::spawn(move || says.send(serve(connection, &server, &stop)));
    served
}

/// `open` for a connection that is there once.
pub fn once(connection: Connection) -> impl Fn() -> Result<Opened, String> + Send + Sync {
    let connection = Mutex::new(Some(connection));
    move || connection.lock().unwrap().take().map(Opened::There).ok_or_else(|| "Gone.".to_owned())
}

/// A request as it goes over the wire.
pub fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// The call of a tool.
pub fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// The same request in the modern way.
pub fn modern(mut request: Value) -> Value {
    request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = schema::MODERN.into();
    request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    request
}

/// The word that a request is not waited for.
pub fn cancelled(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id.into(), "reason": "x"}})
}

impl Client {
    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.to.as_mut().unwrap().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a message, or an array of them.
    pub fn send(&mut self, message: &Value) {
        let one = std::slice::from_ref(message);
        for message in message.as_array().map_or(one, Vec::as_slice) {
            let is_modern = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion").is_some();
            if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
                self.asked.insert(id.to_string(), (method.to_owned(), is_modern));
            }
        }
        self.raw(format!("{message}\n"));
    }

    /// The next line, unchecked; none if the output has ended.
    pub fn line(&mut self) -> Option<String> {
        let deadline = Instant::now() + LONG;
        let line = self.from.recv_deadline(deadline);
        assert!(Instant::now() < deadline, "nothing has come");
        line.ok()
    }

    /// The next message, or array of them.
    pub fn next(&mut self) -> Value {
        let line = self.line().expect("the output has ended");
        assert!(line.len() <= 10 << 20, "{} bytes in a line", line.len());
        let message: Value = serde_json::from_str(&line).unwrap();
        match message.as_array() {
            Some(all) => {
                schema::check("2025-03-26", "JSONRPCBatchResponse", &message);
                all.iter().for_each(|one| self.check(one));
            }
            None => self.check(&message),
        }
        message
    }

    fn check(&self, message: &Value) {
        match message.get("id") {
            None => schema::check_notification(message),
            Some(id) => match self.asked.get(&id.to_string()) {
                Some((method, is_modern)) => schema::check_answer(method, *is_modern, message),
                None => panic!("nobody has asked for {message}"),
            },
        }
    }

    /// Asks, and takes the next message for the answer.
    pub fn ask(&mut self, request: &Value) -> Value {
        self.send(request);
        let answer = self.next();
        assert_eq!(answer["id"], request["id"], "{request} → {answer}");
        answer
    }

    /// Nothing has come of what was sent before.
    pub fn expect_silence(&mut self, after: &str) {
        self.send(&request("silence?", "ping", json!({})));
        let answer = self.next();
        assert_eq!(answer["id"], "silence?", "{after} → {answer}");
    }

    /// Ends what the client sends.
    pub fn close(&mut self) {
        self.to = None;
    }

    /// How serving has ended, within a time.
    pub fn ends_within(&self, time: Duration) -> Ended {
        self.served.recv_timeout(time).expect("still serving").unwrap()
    }
}
