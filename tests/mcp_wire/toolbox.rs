//! A toolbox of a few strange tools, which tells what becomes of its calls.

use std::sync::LazyLock;
use std::time::Duration;

use a2e_proc::crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use a2e_proc::face::mcp::{Annotations, Call, Done, Problem, Tool, Toolbox};
use serde_json::{Map, Value, json};

/// What has become of a call, and of which.
pub type Told = (&'static str, String);

/// Tools that wait until they are told.
pub struct Strange {
    told: Sender<Told>,
    release: Receiver<()>,
}

/// The other side of a toolbox.
pub struct Hand {
    /// What becomes of the calls of `hold` and `stubborn`.
    pub told: Receiver<Told>,
    /// Lets go of one call of `hold`.
    pub release: Sender<()>,
}

impl Strange {
    pub fn new() -> (Self, Hand) {
        let ((told, hears), (release, released)) = (unbounded(), unbounded());
        (Self { told, release: released }, Hand { told: hears, release })
    }
}

/// The tools.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let any = json!({"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]});
    let tool = |name, properties: Value, required: Value| Tool {
        name,
        title: "A title",
        description: "What it does.",
        input: json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        }),
        output: any.clone(),
        annotations: Annotations { read_only: true, ..Annotations::default() },
    };
    let name = json!({"name": {"type": "string"}});
    vec![
        tool("echo", json!({"text": {"type": "string"}, "times": {"type": "integer", "minimum": 0}}), json!([])),
        tool("hold", name.clone(), json!(["name"])),
        tool("stubborn", name, json!(["name"])),
        tool("steps", json!({}), json!([])),
        tool("refuse", json!({}), json!([])),
        tool("malformed", json!({}), json!([])),
        tool("panic", json!({}), json!([])),
    ]
});

impl Toolbox for Strange {
    fn call(&self, tool: &'static Tool, arguments: Map<String, Value>, call: &Call) -> Result<Done, Problem> {
        let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let tell = |what| drop(self.told.send((what, name.clone())));
        let text = match tool.name {
            "echo" => {
                let times = arguments.get("times").map_or(1, |times| times.as_u64().unwrap());
                arguments.get("text").map_or("", |text| text.as_str().unwrap()).repeat(usize::try_from(times).unwrap())
            }
            "hold" => {
                tell("begun");
                select! {
                    recv(self.release) -> _ => tell("released"),
                    recv(call.cancelled()) -> _ => tell("cancelled"),
                }
                "held".to_owned()
            }
            "stubborn" => {
                tell("begun");
                let _ = never::<()>().recv_timeout(Duration::from_secs(20));
                "at last".to_owned()
            }
            "steps" => {
                for done in [1, 2, 2, 3] {
                    call.progress(f64::from(done), Some(3.0), "on the way");
                }
                "there".to_owned()
            }
            "refuse" => return Err(Problem::Refused("Not now. Try later.".into())),
            "malformed" => return Err(Problem::InvalidParams("what?".into())),
            _ => panic!("this is meant"),
        };
        Ok(Done { structured: Map::from_iter([("said".to_owned(), text.clone().into())]), text })
    }
}
