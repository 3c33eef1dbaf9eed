//! The tools as clients are told of them: names, words, arguments, results. What they do is in `toolbox`.

use std::sync::OnceLock;

use super::schema::*;
use super::tool::{Annotations, Tool};

/// What a model should know of all tools.
pub const INSTRUCTIONS: &str = "\
These tools control the process entries of one project: commands (stored in its solo.yml), terminals and agents. Entries have \
numbers (id) that are never reused and unique names; either names an entry. Begin with list_processes. A stored command runs \
only if a person has trusted it, at a terminal, with `a2e-proc trust grant NAME`; no tool can do that. Output is what a terminal \
shows; get_process_output pages backwards with `before`. help has more.";

const LOOKS: Annotations = Annotations { read_only: true, destructive: false, idempotent: true, open_world: false };
const CHANGES: Annotations = Annotations { read_only: false, destructive: false, idempotent: true, open_world: false };
const STARTS: Annotations = Annotations { read_only: false, destructive: false, idempotent: true, open_world: true };
const ADDS: Annotations = Annotations { read_only: false, destructive: false, idempotent: false, open_world: true };
const ENDS: Annotations = Annotations { read_only: false, destructive: true, idempotent: true, open_world: false };
const RESTARTS: Annotations = Annotations { read_only: false, destructive: true, idempotent: false, open_world: true };

/// Every tool, in the order in which they are listed.
pub fn tools() -> &'static [Tool] {
    static TOOLS: OnceLock<Vec<Tool>> = OnceLock::new();
    TOOLS.get_or_init(all)
}

fn all() -> Vec<Tool> {
    let tool = |name, title, description, arguments: &[Arguments], output, annotations| Tool {
        name,
        title,
        description,
        input: input(arguments),
        output,
        annotations,
    };
    vec![
        tool(
            "list_processes",
            "List processes",
            "List every process entry of the project: commands, terminals and agents, running or not, with id, name, kind, \
             status and command.",
            &[],
            object(
                &[("project", text()), ("processes", list(process())), ("notices", list(text()))],
                &["project", "processes"],
            ),
            LOOKS,
        ),
        tool(
            "get_process_status",
            "Get a process's status",
            "Read the status of one process entry, how it ended if it did, and what became of the input that was sent to it \
             lately (input_deliveries).",
            &[target()],
            with(&process(), &[("input_deliveries", list(delivery()))], &["input_deliveries"]),
            LOOKS,
        ),
        tool(
            "get_process_output",
            "Read a process's output",
            "Read the end of what a process shows, as text: the last lines, those that scrolled away included. For older lines \
             pass the `before` of the last answer. Colours are left out unless asked for. Output stays after the process has \
             ended.",
            &[target(), lines(), page()],
            object(
                &[
                    ("id", integer("The entry.")),
                    ("status", status()),
                    ("output", described(text(), "The lines, oldest first.")),
                    ("first_row", integer("The number of the first line in output.")),
                    ("before", integer("Pass this as before, for older lines. Absent if there are none.")),
                    (
                        "alternate_screen",
                        described(boolean(), "A full-screen program, an editor or a pager, has the screen."),
                    ),
                ],
                &["id", "status", "output"],
            ),
            LOOKS,
        ),
        tool(
            "get_process_raw_output",
            "Read a process's raw output",
            "Read the last bytes that a process wrote as they came, escape sequences included. Use get_process_output unless \
             you need those.",
            &[target(), lines(), byte()],
            object(
                &[
                    ("id", integer("The entry.")),
                    ("status", status()),
                    ("output", text()),
                    (
                        "before",
                        integer(
                            "How many bytes the process wrote before those in output. Pass this as before, for older ones.",
                        ),
                    ),
                    ("total_bytes", integer("How many bytes it wrote in all.")),
                ],
                &["id", "status", "output", "total_bytes"],
            ),
            LOOKS,
        ),
        tool(
            "search_output",
            "Search a process's output",
            "Find the lines of a process's output that contain a text, in whatever case, the newest last. It is no regular \
             expression. Row numbers can be passed to get_process_output as `before` to see what stands around them.",
            &[target(), search()],
            object(
                &[
                    ("id", integer("The entry.")),
                    (
                        "matches",
                        list(object(&[("row", integer("The line's number.")), ("text", text())], &["row", "text"])),
                    ),
                    ("total", integer("How many lines match in all.")),
                ],
                &["id", "matches", "total"],
            ),
            LOOKS,
        ),
        tool(
            "clear_output",
            "Clear a process's output",
            "Forget what a process has shown so far. What it shows from now on is kept again.",
            &[target()],
            process(),
            Annotations { destructive: true, ..CHANGES },
        ),
        tool(
            "rename_process",
            "Rename a process",
            "Give a process entry another name, which no other may have. Its id, its trust and its process stay.",
            &[target(), new_name()],
            process(),
            CHANGES,
        ),
        tool(
            "select_process",
            "Select a process",
            "Select a process entry: the person who runs the desk is told which, and it is marked in the list.",
            &[target()],
            process(),
            CHANGES,
        ),
        tool(
            "start_process",
            "Start a process",
            "Start a process entry that does not run: a stored command, a terminal or an agent. One that runs is left as it is. \
             A command must be trusted. To add a terminal or an agent use spawn_process or spawn_agent.",
            &[target()],
            process(),
            STARTS,
        ),
        tool(
            "stop_process",
            "Stop a process",
            "Stop a running process: it is asked to end, and killed with all of its session if it has not after two seconds. \
             The entry stays. Stopping your own process takes confirm_self_stop.",
            &[target(), confirm("confirm_self_stop", "stop or restart")],
            process(),
            ENDS,
        ),
        tool(
            "restart_process",
            "Restart a process",
            "Stop a process if it runs, and start it: one copy, whoever else restarts it at the same time. A command must be \
             trusted. Restarting your own process takes confirm_self_stop.",
            &[target(), confirm("confirm_self_stop", "stop or restart")],
            process(),
            RESTARTS,
        ),
        tool(
            "close_process",
            "Close a terminal or agent",
            "Stop a terminal or an agent and take it off the desk for good, with its output. Commands cannot be closed, only \
             stopped. Closing your own process takes confirm_self_close.",
            &[target(), confirm("confirm_self_close", "close")],
            process(),
            ENDS,
        ),
        tool(
            "spawn_process",
            "Add a terminal or agent",
            "Add a terminal (the user's shell) or an agent, and start it. spawn_agent is shorter for an agent.",
            &[kind(), agent(false), new()],
            process(),
            ADDS,
        ),
        tool(
            "spawn_agent",
            "Add an agent",
            "Add a coding agent, and start it. list_agent_tools shows which there are.",
            &[agent(true), new()],
            process(),
            ADDS,
        ),
        tool(
            "list_agent_tools",
            "List agent tools",
            "List the agents that can be started, as a person has configured them.",
            &[],
            object(
                &[(
                    "agent_tools",
                    list(object(
                        &[("id", text()), ("name", text()), ("command", list(text())), ("enabled", boolean())],
                        &["id", "name", "command", "enabled"],
                    )),
                )],
                &["agent_tools"],
            ),
            LOOKS,
        ),
        tool(
            "start_all_commands",
            "Start all commands",
            "Start every stored command that does not run and is trusted. Terminals and agents are left alone.",
            &[],
            every(),
            STARTS,
        ),
        tool(
            "stop_all_commands",
            "Stop all commands",
            "Stop every stored command that runs. Terminals and agents are left alone, and so is your own process.",
            &[],
            every(),
            ENDS,
        ),
        tool(
            "restart_all_commands",
            "Restart all commands",
            "Restart every stored command that is trusted; one that does not run is started. Your own process is left alone.",
            &[],
            every(),
            RESTARTS,
        ),
        tool(
            "get_process_ports",
            "Get a process's ports",
            "List the TCP ports at which a process and those that it started listen now.",
            &[target()],
            object(&[("id", integer("The entry.")), ("ports", list(port()))], &["id", "ports"]),
            LOOKS,
        ),
        tool(
            "wait_for_bound_port",
            "Wait for a port",
            "Wait until a process listens at a port of localhost, as a development server does when it is ready. Says so when \
             the time is over, and may be called again; nothing is stopped.",
            &[target(), timeout()],
            object(
                &[
                    ("id", integer("The entry.")),
                    ("bound", described(boolean(), "Whether it listens at a port of localhost.")),
                    ("status", status()),
                    ("ports", list(port())),
                ],
                &["id", "bound", "status", "ports"],
            ),
            LOOKS,
        ),
        tool(
            "send_input",
            "Send input to a process",
            "Type into a running process. Text is followed by Enter unless submit is false. To an agent it is a message, pasted \
             in one piece; intent \"interaction\" types it as keys, to answer a prompt. bytes sends bytes instead: [13] is Enter, \
             [3] Ctrl-C, [27] Escape. wait_ms waits that long afterwards and returns the end of the output. Delivered means \
             that the terminal has it, not that the program has acted on it.",
            &[target(), keys()],
            object(
                &[
                    ("id", integer("The entry.")),
                    ("accepted", described(boolean(), "Whether any of it was sent; if not, it may be sent again.")),
                    ("delivered", described(boolean(), "Whether the terminal has all of it.")),
                    ("delivery_id", integer("Names this delivery in get_process_status.")),
                    (
                        "delivery_uncertain",
                        described(boolean(), "It may still arrive: do not send it again; look at the output."),
                    ),
                    ("status", status()),
                    ("output", described(text(), "With wait_ms: the end of the output.")),
                ],
                &["id", "accepted", "delivered", "status"],
            ),
            Annotations { read_only: false, destructive: true, idempotent: false, open_world: true },
        ),
        tool(
            "whoami",
            "Who am I",
            "Say which process entry this connection comes from, if it comes from one, and which project it is.",
            &[],
            object(
                &[
                    ("project", text()),
                    ("directory", text()),
                    ("is_managed", described(boolean(), "Whether you run in one of the desk's processes.")),
                    ("process", process()),
                ],
                &["project", "directory", "is_managed"],
            ),
            LOOKS,
        ),
        tool(
            "help",
            "Help",
            "Explain these tools: an overview, or one topic.",
            &[topic()],
            object(&[("topic", text()), ("text", text())], &["topic", "text"]),
            LOOKS,
        ),
    ]
}
