//! What `help` says.

use serde_json::json;

use super::shown::done;
use super::tool::Done;

/// The words on a topic of [`super::schema::TOPICS`].
pub fn about(topic: &str) -> Done {
    let text = match topic {
        "output" => OUTPUT,
        "input" => INPUT,
        "trust" => TRUST,
        "ports" => PORTS,
        "agents" => AGENTS,
        _ => OVERVIEW,
    };
    done(text, json!({"topic": topic, "text": text}))
}

const OVERVIEW: &str = "\
A project has process entries: commands (from its solo.yml), terminals (the user's shell) and agents. list_processes shows them.
start_process, stop_process and restart_process work on any entry; close_process takes terminals and agents away.
spawn_process and spawn_agent add new ones. get_process_output shows what a process says, send_input types into it.
A status is stopped, starting, running, stopping, exited (by itself, with code 0) or failed (by itself otherwise, or not started).
Stopping ends the whole session of a process; what has left it (setsid) lives on. Entries and their names are remembered; their processes end with the desk.
Topics: overview, output, input, trust, ports, agents.";

const OUTPUT: &str = "\
get_process_output gives the last lines of what the terminal shows and has scrolled away, as text. Each line has a number that is
never given again; the answer's `before`, passed back, gives the lines before. A full-screen program (alternate_screen) shows its
screen; what was there before is among the older lines. search_output finds lines by a part of them. 10,000 lines are kept, and
256 KiB of raw output. Output stays when a process ends, and the next run goes on below it; clear_output forgets it.";

const INPUT: &str = "\
send_input types text and presses Enter; submit: false leaves Enter out. bytes sends keys: [3] Ctrl-C, [4] Ctrl-D (end of input),
[27] Escape, [9] Tab, [27,91,65] arrow up. To an agent, text is a message: it is pasted in one piece where the agent takes pastes,
and Enter is pressed once it has read it. intent: \"interaction\" types instead, to answer a prompt.
wait_ms returns the end of the output after that time. Delivered means that the terminal has the bytes. If the answer says
delivery_uncertain, do not send again: look at the output first.
A program that reads lines gets at most 4,095 bytes of one line; the system cuts off the rest.";

const TRUST: &str = "\
A command in the project's file runs only if a person has trusted exactly what stands there: command, directory, environment,
flags and watch patterns. They do that at a terminal: a2e-proc trust show NAME, a2e-proc trust grant NAME. After a change it has to
be granted again. No tool can grant it. Stopping needs no trust. Terminals and agents need none: they are the user's own.";

const PORTS: &str = "\
get_process_ports lists the TCP ports at which a process, and all that it has started, listen. wait_for_bound_port waits until
one is there that localhost reaches; when its time is over it says so, and can be called again.";

const AGENTS: &str = "\
list_agent_tools shows the coding agents that a person has configured; spawn_agent adds one to the desk and starts it in the
project's directory. Each has an entry of its own, which is remembered, and can be started again. An agent that is started here and
connects to these tools is known by its process: whoami says so, and stopping yourself needs a confirmation.";
