//! What tools answer: entries, lines and outcomes as data for programs and as words for models.

use serde_json::{Map, Value, json};

use super::tool::Done;
use crate::desk::{Port, Refused, View};

/// Bytes of output that one answer carries.
pub const MOST_OUTPUT: usize = 16 * 1024;

/// Characters of a command that an answer shows.
const MOST_COMMAND: usize = 300;

/// An answer: words for a model, data for a program.
pub fn done(text: impl Into<String>, structured: Value) -> Done {
    let structured = match structured {
        Value::Object(object) => object,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    Done { text: text.into(), structured }
}

/// An entry as data. What there is nothing to say of is left out.
pub fn process(view: &View) -> Value {
    let mut shown = json!({
        "id": view.id,
        "name": view.name,
        "kind": view.kind.as_str(),
        "status": view.status.as_str(),
        "command": cut(&view.command),
        "selected": view.is_selected,
    });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown[name] = value;
        }
    };
    add("pid", view.pid.map(Into::into));
    add("uptime_seconds", view.uptime.map(|uptime| uptime.as_secs().into()));
    add("exit_code", view.exit_code.map(Into::into));
    add("why", view.why.clone().map(Into::into));
    if view.is_command() {
        add("auto_start", Some(view.auto_start.into()));
        add("auto_restart", Some(view.auto_restart.into()));
    }
    shown
}

/// The beginning of a command, where it stands in a list of many.
fn cut(command: &str) -> String {
    match command.char_indices().nth(MOST_COMMAND) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

/// An entry as one line.
pub fn line(view: &View) -> String {
    let mut words = format!("{} {} ({}): {}", view.id, view.name, view.kind.as_str(), view.status.as_str());
    if let Some(pid) = view.pid {
        words += &format!(", pid {pid}");
    }
    if let Some(uptime) = view.uptime {
        words += &format!(", up {} s", uptime.as_secs());
    }
    match view.exit_code {
        Some(code) if code < 0 => words += &format!(", ended by signal {}", -code),
        Some(code) => words += &format!(", exit code {code}"),
        None => {}
    }
    if let Some(why) = &view.why {
        words += &format!(", because {why}");
    }
    words += &format!(" — {}", cut(&view.command));
    words
}

/// An entry after something was done to it.
pub fn one(words: &str, view: &View) -> Done {
    let text = if words.is_empty() { line(view) } else { format!("{words}\n{}", line(view)) };
    done(text, process(view))
}

/// What an order to all commands came to.
pub fn every(reached: &[View], refused: &[(String, Refused)]) -> Done {
    let mut lines: Vec<String> = reached.iter().map(line).collect();
    lines.extend(refused.iter().map(|(name, why)| format!("not {name}: {why}")));
    if lines.is_empty() {
        lines.push("The project's file has no commands.".into());
    }
    let refused: Vec<Value> = refused.iter().map(|(name, why)| json!({"name": name, "why": why.0})).collect();
    let processes: Vec<Value> = reached.iter().map(process).collect();
    done(lines.join("\n"), json!({"processes": processes, "refused": refused}))
}

/// Ports as data.
pub fn ports(ports: &[Port]) -> Value {
    let shown = ports.iter().map(|port| {
        json!({"port": port.number, "address": port.address.to_string(), "pid": port.pid, "is_local": port.is_local()})
    });
    Value::Array(shown.collect())
}

/// Ports as words.
pub fn port_lines(ports: &[Port]) -> String {
    let lines = ports.iter().map(|port| format!("{} at {}, process {}", port.number, port.address, port.pid));
    lines.collect::<Vec<_>>().join("\n")
}

/// The end of `text` that fits into an answer, from the beginning of a line if there is one, and how much was left out before it.
pub fn last_part(text: &str) -> (usize, &str) {
    let Some(least) = text.len().checked_sub(MOST_OUTPUT).filter(|&over| over > 0) else { return (0, text) };
    let from = text.ceil_char_boundary(least);
    let line = text[from..].find('\n').map(|at| from + at + 1).filter(|&at| at < text.len());
    let from = line.unwrap_or(from);
    (from, &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_begins_with_a_line() {
        assert_eq!(last_part("short\ntext"), (0, "short\ntext"));
        let lines = "é".repeat(99) + "\n";
        let text = lines.repeat(200);
        let (left_out, part) = last_part(&text);
        assert!(part.len() <= MOST_OUTPUT && part.len() > MOST_OUTPUT - 400 && part.starts_with('é'));
        assert_eq!(&text[left_out..], part);
        assert!(left_out % lines.len() == 0);
        let long = "é".repeat(MOST_OUTPUT);
        assert_eq!(last_part(&long).1.len(), MOST_OUTPUT);
    }
}
