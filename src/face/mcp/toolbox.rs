//! What the tools do: each call, with arguments that fit its schema, becomes a word to the desk, and what comes of it an answer.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{after, select};
use serde_json::{Map, Value, json};

use super::given::Given;
use super::help;
use super::schema::{LONGEST_WAIT_MS, USUAL_WAIT_MS};
use super::shown::{self, done};
use super::tool::{Call, Done, Problem, Tool, Toolbox};
use crate::desk::{All, Desk, NewProcess, Refused, Status, Target, View, Waited};

/// The desk for one connection.
pub struct DeskTools {
    pub(super) desk: Arc<Desk>,
    /// The entry that the connection comes from.
    caller: Option<u64>,
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused.0)
    }
}

/// How long an entry is given to stop before the answer says that it is still stopping: the grace period and some more.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked whether a port is bound. The system tells nobody.
const PORT_PAUSE: Duration = Duration::from_millis(100);

impl DeskTools {
    /// The tools of a desk, for a connection that comes from one of its processes, or from elsewhere.
    pub fn new(desk: Arc<Desk>, caller: Option<u64>) -> Self {
        Self { desk, caller }
    }
}

impl Toolbox for DeskTools {
    fn call(&self, tool: &'static Tool, arguments: Map<String, Value>, call: &Call) -> Result<Done, Problem> {
        let given = &Given(arguments);
        match tool.name {
            "list_processes" => Ok(self.list()),
            "list_agent_tools" => self.agent_tools(),
            "start_all_commands" => Ok(self.every(self.desk.start_all())),
            "stop_all_commands" => Ok(self.every(self.desk.stop_all(self.caller))),
            "restart_all_commands" => Ok(self.every(self.desk.restart_all(self.caller))),
            "whoami" => Ok(self.whoami()),
            "help" => Ok(help::about(given.text("topic").unwrap_or("overview"))),
            "spawn_process" => self.spawn_process(given),
            "spawn_agent" => self.spawn(given.text("agent_tool_id"), given),
            // Looked up once: a name may mean another entry in a moment.
            name => self.on_one(name, &Target::Id(self.desk.view(&given.target()?)?.id), given, call),
        }
    }
}

impl DeskTools {
    /// Does what is done to one entry.
    fn on_one(&self, tool: &str, target: &Target, given: &Given, call: &Call) -> Result<Done, Problem> {
        match tool {
            "get_process_status" => self.status(target),
            "get_process_output" => self.output(target, given),
            "get_process_raw_output" => self.raw_output(target, given),
            "search_output" => self.search(target, given),
            "clear_output" => Ok(shown::one("Its output is cleared.", &self.desk.clear_output(target)?)),
            "rename_process" => {
                let name = given.text("new_name").unwrap_or_default();
                Ok(shown::one("It is renamed.", &self.desk.rename(target, name)?))
            }
            "select_process" => Ok(shown::one("It is selected.", &self.desk.select(target)?)),
            "start_process" => started(&self.desk.start(target)?),
            "stop_process" => {
                self.confirm(target, given, "confirm_self_stop", "stop")?;
                let view = self.desk.stop(target)?;
                self.settled(&view, call, "It still stops; get_process_status says when it has.")
            }
            "restart_process" => {
                self.confirm(target, given, "confirm_self_stop", "restart")?;
                let view = self.desk.restart(target)?;
                self.settled(&view, call, "It still stops, and will be started then; get_process_status says when.")
            }
            "close_process" => self.close(target, given, call),
            "get_process_ports" => self.ports(target),
            "wait_for_bound_port" => self.wait_for_port(target, given, call),
            "send_input" => self.send_input(target, given, call),
            // The catalogue has no other: a test holds that.
            other => Err(Problem::InvalidParams(format!("there is no tool {other:?}"))),
        }
    }

    fn list(&self) -> Done {
        let (views, notices, project) = (self.desk.list(), self.desk.notices(), self.desk.project());
        let mut lines: Vec<String> = views.iter().map(shown::line).collect();
        if lines.is_empty() {
            lines.push(
                "There are no processes yet. spawn_process adds a terminal; commands stand in the project's solo.yml."
                    .into(),
            );
        }
        lines.extend(notices.iter().map(|notice| format!("Note: {notice}")));
        let mut structured =
            json!({"project": project, "processes": views.iter().map(shown::process).collect::<Vec<_>>()});
        if !notices.is_empty() {
            structured["notices"] = json!(notices);
        }
        done(lines.join("\n"), structured)
    }

    fn status(&self, target: &Target) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let deliveries: Vec<Value> = self
            .desk
            .deliveries(target)?
            .iter()
            .map(|sent| {
                json!({
                    "delivery_id": sent.id,
                    "status": sent.status.as_str(),
                    "bytes": sent.bytes,
                    "seconds_ago": sent.at.elapsed().as_secs(),
                })
            })
            .collect();
        let mut text = shown::line(&view);
        for sent in &deliveries {
            let _ = write!(text, "\ninput {}: {}", sent["delivery_id"], sent["status"].as_str().unwrap_or_default());
        }
        let mut structured = shown::process(&view);
        structured["input_deliveries"] = deliveries.into();
        Ok(done(text, structured))
    }

    fn close(&self, target: &Target, given: &Given, call: &Call) -> Result<Done, Problem> {
        self.confirm(target, given, "confirm_self_close", "close")?;
        let view = self.desk.close_entry(target)?;
        let gone = self.desk.wait(&Target::Id(view.id), STOPS_WITHIN, call.cancelled(), |_| None::<()>);
        match gone {
            Err(_) => {
                Ok(shown::one("It is closed.", &View { status: Status::Stopped, pid: None, uptime: None, ..view }))
            }
            Ok(_) => Ok(shown::one("It still stops, and will be closed then.", &view)),
        }
    }

    /// Waits until an entry has stopped, or stopped and started.
    fn settled(&self, view: &View, call: &Call, still: &str) -> Result<Done, Problem> {
        let target = Target::Id(view.id);
        let settled = |view: &View| (!matches!(view.status, Status::Stopping | Status::Starting)).then_some(());
        let waited = self.desk.wait(&target, STOPS_WITHIN, call.cancelled(), settled);
        let words = if matches!(waited, Ok(Waited::TimedOut | Waited::Cancelled)) { still } else { "" };
        // A command that is in the project's file no more is not there any more once it has stopped.
        let gone = || View { status: Status::Stopped, pid: None, uptime: None, ..view.clone() };
        let view = self.desk.view(&target).unwrap_or_else(|_| gone());
        if words.is_empty() { started(&view) } else { Ok(shown::one(words, &view)) }
    }

    fn every(&self, all: All) -> Done {
        shown::every(&all.done, &all.refused)
    }

    fn confirm(&self, target: &Target, given: &Given, argument: &str, doing: &str) -> Result<(), Problem> {
        let view = self.desk.view(target)?;
        let is_confirmed = given.flag(argument).unwrap_or(false);
        if Some(view.id) == self.caller && !is_confirmed {
            return Err(Problem::Refused(format!(
                "{:?} is the process that you run in. If the user has explicitly asked you to {doing} it, call again with \
                 {argument}: true",
                view.name
            )));
        }
        Ok(())
    }

    fn agent_tools(&self) -> Result<Done, Problem> {
        let tools = self.desk.agent_tools()?;
        let mut lines: Vec<String> = tools
            .iter()
            .map(|tool| {
                let off = if tool.enabled { "" } else { " (switched off)" };
                format!("{}: {}{off} — {}", tool.id, tool.name, tool.command.join(" "))
            })
            .collect();
        if lines.is_empty() {
            lines.push(format!(
                "No agents are configured. A person can do that, in {}.",
                self.desk.paths().agents.display()
            ));
        }
        let tools: Vec<Value> = tools
            .iter()
            .map(|tool| json!({"id": tool.id, "name": tool.name, "command": tool.command, "enabled": tool.enabled}))
            .collect();
        Ok(done(lines.join("\n"), json!({"agent_tools": tools})))
    }

    fn spawn_process(&self, given: &Given) -> Result<Done, Problem> {
        let agent = given.text("agent_tool_id");
        match (given.text("kind"), agent) {
            (Some("agent"), None) => {
                Err(Problem::Refused("an agent needs agent_tool_id; list_agent_tools shows which there are".into()))
            }
            (Some("agent"), agent) => self.spawn(agent, given),
            (_, Some(_)) => {
                Err(Problem::Refused("a terminal has no agent_tool_id; leave it out, or say kind: \"agent\"".into()))
            }
            (_, None) => self.spawn(None, given),
        }
    }

    fn spawn(&self, agent: Option<&str>, given: &Given) -> Result<Done, Problem> {
        let extra = given.list("extra_args");
        let new = NewProcess {
            agent_tool_id: agent.map(str::to_owned),
            name: given.text("name").map(str::to_owned),
            extra_args: extra.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        };
        let view = self.desk.spawn(new)?;
        started(&view).inspect_err(|_| drop(self.desk.close_entry(&Target::Id(view.id))))
    }

    fn ports(&self, target: &Target) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let ports = self.desk.ports(target)?;
        let text = match (ports.is_empty(), view.is_running()) {
            (false, _) => shown::port_lines(&ports),
            (true, true) => "It listens at no port now; wait_for_bound_port waits for one.".to_owned(),
            (true, false) => format!("It does not run ({}), so it listens at no port.", view.status.as_str()),
        };
        Ok(done(text, json!({"id": view.id, "ports": shown::ports(&ports)})))
    }

    fn wait_for_port(&self, target: &Target, given: &Given, call: &Call) -> Result<Done, Problem> {
        let over = after(given.milliseconds("timeout_ms", USUAL_WAIT_MS, LONGEST_WAIT_MS));
        let start = Instant::now();
        loop {
            let view = self.desk.view(target)?;
            let ports = self.desk.ports(target)?;
            let is_bound = ports.iter().any(|port| port.is_local());
            let answer = |words: String| {
                let status = view.status.as_str();
                done(words, json!({"id": view.id, "bound": is_bound, "status": status, "ports": shown::ports(&ports)}))
            };
            if is_bound {
                return Ok(answer(shown::port_lines(&ports)));
            }
            if !view.status.is_active() {
                return Ok(answer(format!("It does not run, so there is nothing to wait for: {}", shown::line(&view))));
            }
            select! {
                recv(call.cancelled()) -> _ => return Ok(answer("The wait was cancelled.".into())),
                recv(over) -> _ => return Ok(answer("It still runs, and listens at no port of localhost yet; call again to wait on.".into())),
                default(PORT_PAUSE) => {}
            }
            call.progress(start.elapsed().as_secs() as f64, None, "seconds of waiting for a port");
        }
    }

    fn whoami(&self) -> Done {
        let view = self.caller.and_then(|id| self.desk.view(&Target::Id(id)).ok());
        let directory = self.desk.paths().root.to_string_lossy().into_owned();
        let mut structured =
            json!({"project": self.desk.project(), "directory": directory, "is_managed": view.is_some()});
        let text = match &view {
            Some(view) => {
                structured["process"] = shown::process(view);
                format!("You run in {}", shown::line(view))
            }
            None => format!("You run in none of the processes of this desk. The project is {directory}."),
        };
        done(text, structured)
    }
}

/// What is told of an entry that has just been started.
fn started(view: &View) -> Result<Done, Problem> {
    match &view.why {
        Some(why) if view.status == Status::Failed => {
            Err(Problem::Refused(format!("{:?} was not started: {why}", view.name)))
        }
        _ => Ok(shown::one("", view)),
    }
}
