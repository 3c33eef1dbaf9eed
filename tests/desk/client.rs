//! One MCP client: a line of JSON for each message, and answers in whatever order they come.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use serde_json::{Value, json};

use super::shell::PROMPT;
use super::{LONG, until};

/// Lines of an exchange that are shown when a test fails.
const SHOWN: usize = 16;

pub struct Client {
    /// Absent of one that came by the socket.
    child: Option<Child>,
    output: Option<Box<dyn Write + Send>>,
    lines: Receiver<String>,
    answers: HashMap<u64, Value>,
    /// What the server said of its own accord.
    pub notifications: Vec<Value>,
    last: u64,
    said: Vec<String>,
}

impl Client {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        Self::new(Some(child), input, Box::new(output))
    }

    pub fn over(stream: UnixStream) -> Self {
        /// Dropping it is the end of the input for the other side.
        struct Half(UnixStream);
        impl Write for Half {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                self.0.flush()
            }
        }
        impl Drop for Half {
            fn drop(&mut self) {
                // The other side may have gone.
                let _ = self.0.shutdown(Shutdown::Write);
            }
        }
        Self::new(None, stream.try_clone().unwrap(), Box::new(Half(stream)))
    }

    fn new(child: Option<Child>, input: impl Read + Send + 'static, output: Box<dyn Write + Send>) -> Self {
        let (says, lines) = unbounded();
        // Ends with the other side, or with this.
        thread::spawn(move || {
            for line in BufReader::new(input).lines().map_while(Result::ok) {
                if says.send(line).is_err() {
                    break;
                }
            }
        });
        let (answers, notifications, said) = (HashMap::new(), Vec::new(), Vec::new());
        Self { child, output: Some(output), lines, answers, notifications, last: 0, said }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a message. False if nobody takes it any more.
    pub fn send(&mut self, message: &Value) -> bool {
        let line = format!("{message}\n");
        self.said.push(format!("> {message}"));
        let output = self.output.as_mut().unwrap();
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_ok()
    }

    /// Sends a request, and returns its number.
    pub fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    /// The answer to a request: a `result` or an `error`.
    pub fn answer(&mut self, id: u64) -> Value {
        let start = Instant::now();
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let line = self.lines.recv_timeout(LONG.saturating_sub(start.elapsed()));
            let line = line.unwrap_or_else(|e| panic!("no answer to {id}: {e}"));
            self.take(line);
        }
    }

    fn take(&mut self, line: String) {
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.said.push(format!("< {line}"));
        match message["id"].as_u64() {
            Some(id) => assert!(self.answers.insert(id, message).is_none(), "two answers to {id}"),
            None => self.notifications.push(message),
        }
    }

    pub fn initialize(&mut self) {
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let id = self.ask("initialize", &params);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18", "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Begins to call a tool.
    pub fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Gives up on a request.
    pub fn cancel(&mut self, id: u64) {
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }

    /// Whether a request has no answer so far, though all that came after it have.
    pub fn unanswered(&mut self, id: u64) -> bool {
        let last = self.ask("ping", &json!({}));
        self.answer(last);
        !self.answers.contains_key(&id)
    }

    /// What a call came to: its data, or the words with which it was refused.
    pub fn end(&mut self, id: u64) -> Result<Value, String> {
        let answer = self.answer(id);
        let Some(result) = answer.get("result") else {
            return Err(format!("{}: {}", answer["error"]["code"], answer["error"]["message"]));
        };
        let words = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no words: {answer}"));
        if result.get("isError").is_some_and(|flag| flag == true) {
            Err(words.into())
        } else {
            Ok(result["structuredContent"].clone())
        }
    }

    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let id = self.begin(tool, arguments);
        self.end(id)
    }

    /// What a tool answers, or `None` if the server has gone before it has.
    pub fn attempt(&mut self, tool: &str, arguments: &Value) -> Option<Value> {
        self.last += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params});
        if !self.send(&request) {
            return None;
        }
        while !self.answers.contains_key(&self.last) {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => self.take(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {request}"),
            }
        }
        Some(self.end(self.last).unwrap_or_else(|words| panic!("{tool} {arguments} was refused: {words}")))
    }

    /// What a tool answers.
    pub fn ok(&mut self, tool: &str, arguments: &Value) -> Value {
        self.call(tool, arguments).unwrap_or_else(|words| panic!("{tool} {arguments} was refused: {words}"))
    }

    /// The words with which a tool refuses, which hold `part`.
    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: &Value, part: &str) -> String {
        match self.call(tool, arguments) {
            Ok(data) => panic!("{tool} {arguments} was not refused: {data}"),
            Err(words) => {
                assert!(words.contains(part), "{tool} {arguments}: {part:?} is not in {words:?}");
                words
            }
        }
    }

    /// The entry of that name, as the list has it.
    pub fn entry(&mut self, name: &str) -> Option<Value> {
        self.list().into_iter().find(|entry| entry["name"] == name)
    }

    pub fn list(&mut self) -> Vec<Value> {
        self.ok("list_processes", &json!({}))["processes"].as_array().unwrap().clone()
    }

    /// The number of the entry of that name.
    pub fn id(&mut self, name: &str) -> u64 {
        let list = self.list();
        let entry = list.iter().find(|entry| entry["name"] == name);
        entry.unwrap_or_else(|| panic!("no {name}: {list:?}"))["id"].as_u64().unwrap()
    }

    pub fn status(&mut self, id: u64) -> Value {
        self.ok("get_process_status", &json!({"process_id": id}))
    }

    /// Waits until an entry has that status.
    pub fn becomes(&mut self, id: u64, status: &str) -> Value {
        until(&format!("{id} is {status}"), || Some(self.status(id)).filter(|entry| entry["status"] == status))
    }

    /// What an entry shows at its end.
    pub fn output(&mut self, id: u64) -> Value {
        self.ok("get_process_output", &json!({"process_id": id, "lines": 200}))
    }

    pub fn text(&mut self, id: u64) -> String {
        self.output(id)["output"].as_str().unwrap().to_owned()
    }

    /// Waits until it shows that, and returns all that it shows.
    pub fn shows(&mut self, id: u64, words: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.text(id);
            if text.contains(words) {
                return text;
            }
            assert!(start.elapsed() < LONG, "{words:?} does not come: {text}");
            thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits until a shell asks for the next line. What is typed before, the program that ends may throw away.
    pub fn asks(&mut self, id: u64) -> String {
        until("the prompt", || Some(self.text(id)).filter(|text| text.ends_with(PROMPT.trim_end())))
    }

    /// Types a line.
    pub fn types(&mut self, id: u64, line: &str) {
        let sent = self.ok("send_input", &json!({"process_id": id, "input": line}));
        assert!(sent["delivered"] == true && sent["accepted"] == true, "{sent}");
    }

    /// Presses keys.
    pub fn presses(&mut self, id: u64, keys: &[u8]) {
        let sent = self.ok("send_input", &json!({"process_id": id, "bytes": keys}));
        assert_eq!(sent["delivered"], true, "{sent}");
    }

    /// Sends no more.
    pub fn finish(&mut self) {
        self.output = None;
    }

    /// How the server ends, which it does of itself.
    pub fn ends(&mut self) -> ExitStatus {
        let child = self.child.as_mut().unwrap();
        until("the server's end", || child.try_wait().unwrap())
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub fn kill(mut self) {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!("--- a client:");
            for line in &self.said[self.said.len().saturating_sub(SHOWN)..] {
                eprintln!("{:.700}", line);
            }
        }
    }
}
