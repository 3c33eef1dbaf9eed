//! What each message of a client means, in every revision. Only decides: nothing here waits, or changes anything.
//!
//! Two eras share a connection, and each request says which it is of. A request of revision 2026-07-28 carries its revision with
//! it; one that does not is of those that open with `initialize`. What was agreed on there changes no later answer, so nothing is
//! kept of it, and a client that leaves it out is served too.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::message::{
    self, INVALID_PARAMS, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Message, UNSUPPORTED_VERSION, fields, given, string,
};
use super::tool::{Done, Problem, Tool};
use super::{Server, arguments};

/// The revisions that open with `initialize`, the newest first: that one is offered to a client that wants another.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The revision whose requests say so. It alone is offered in answers to them: the others cannot be had that way.
const MODERN: &str = "2026-07-28";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// How long a client may keep what it was told of the server, in milliseconds. It changes with the program only.
const TTL_MS: u32 = 60_000;

/// What is to be done about a message.
pub enum Job {
    /// Nothing, and nothing is said.
    Silence,
    /// This line is said at once, to the request with this id.
    Say(Id, String),
    /// A request is not waited for any more.
    Cancel(Id),
    /// A subscription is opened, of which nothing is ever to be told.
    Subscribe(Id),
    /// A tool is called.
    Call(Wanted),
}

/// A call that a toolbox can take.
pub struct Wanted {
    pub id: Id,
    pub era: Era,
    pub tool: &'static Tool,
    pub arguments: Map<String, Value>,
    /// Progress is told with it.
    pub token: Option<Id>,
}

/// How a request's answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// What is to be done about a message; in an array, only revisions before the modern one can be spoken.
pub fn job(server: &Server, message: Message<'_>, in_batch: bool) -> Job {
    match message {
        Message::Request { id, method, params } => {
            request(server, &id, &method, params, in_batch).unwrap_or_else(|fault| fault.of(id))
        }
        Message::Notification { method, params } => {
            message::cancelled(&method, params).map_or(Job::Silence, Job::Cancel)
        }
        Message::Response(_) | Message::Invalid(None, _) => Job::Silence,
        Message::Invalid(Some(id), why) => Fault::new(INVALID_REQUEST, why).of(id),
    }
}

/// The answer to a call.
pub fn answer(id: &Id, era: Era, outcome: Result<Done, Problem>) -> String {
    let (text, rest) = match outcome {
        Ok(Done { text, structured }) => (text, ("structuredContent", Value::Object(structured))),
        Err(Problem::Refused(words)) => (words, ("isError", Value::Bool(true))),
        Err(Problem::InvalidParams(words)) => return message::error(Some(id), INVALID_PARAMS, &words, None),
    };
    let mut body = Map::from_iter([("content".to_owned(), json!([{"type": "text", "text": text}]))]);
    body.insert(rest.0.to_owned(), rest.1);
    result(id, era, body)
}

/// The first line of a subscription: nothing of what may be asked for ever changes here, so none of it is promised.
pub fn acknowledged(id: &Id) -> String {
    #[derive(Serialize)]
    struct Params<'a> {
        _meta: Subscription<'a>,
        notifications: Map<String, Value>,
    }
    let params = Params { _meta: Subscription::new(id), notifications: Map::new() };
    message::notification("notifications/subscriptions/acknowledged", &params)
}

/// The last lines of a subscription that the server ends: its answer, and the word that the revision asks for besides.
pub fn closed(id: &Id) -> [String; 2] {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Closed<'a> {
        result_type: &'static str,
        #[serde(rename = "_meta")]
        meta: Subscription<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        request_id: &'a Id,
    }
    let meta = Subscription { server_info: Some(server_info()), ..Subscription::new(id) };
    let cancelled = message::notification("notifications/cancelled", &Cancelled { request_id: id });
    [message::result(id, &Closed { result_type: "complete", meta }), cancelled]
}

#[derive(Serialize)]
struct Subscription<'a> {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    id: &'a Id,
    #[serde(rename = "io.modelcontextprotocol/serverInfo", skip_serializing_if = "Option::is_none")]
    server_info: Option<Value>,
}

impl<'a> Subscription<'a> {
    fn new(id: &'a Id) -> Self {
        Self { id, server_info: None }
    }
}

/// A request that cannot be served.
struct Fault {
    code: i32,
    words: String,
    data: Option<Value>,
}

impl Fault {
    fn new(code: i32, words: impl Into<String>) -> Self {
        Self { code, words: words.into(), data: None }
    }

    fn params(words: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, words)
    }

    fn of(self, id: Id) -> Job {
        let line = message::error(Some(&id), self.code, &self.words, self.data);
        Job::Say(id, line)
    }
}

fn request(server: &Server, id: &Id, method: &str, params: Option<&RawValue>, in_batch: bool) -> Result<Job, Fault> {
    let no_such = || Fault::new(METHOD_NOT_FOUND, format!("there is no method {:?}", arguments::cut(method)));
    let is_known = ["initialize", "ping", "tools/list", "tools/call", "server/discover", "subscriptions/listen"];
    if !is_known.contains(&method) {
        return Err(no_such());
    }
    let names = ["_meta", "protocolVersion", "cursor", "name", "arguments", "notifications"];
    let [meta, wished, cursor, name, given_arguments, notifications] = object(params, names, "params")?;
    let [token, version, capabilities] = object(meta, ["progressToken", VERSION_KEY, CAPABILITIES_KEY], "_meta")?;
    let era = if version.is_some() { Era::Modern } else { Era::Legacy };
    if era == Era::Modern {
        if in_batch {
            return Err(Fault::new(INVALID_REQUEST, format!("revision {MODERN} has no arrays of requests")));
        }
        check_modern(string(version), capabilities)?;
    }
    let say = |body: Value| {
        let Value::Object(body) = body else { return Job::Silence };
        Job::Say(id.clone(), result(id, era, body))
    };
    match (method, era) {
        ("initialize", Era::Legacy) => Ok(say(json!({
            "protocolVersion": agreed(string(wished).as_deref()),
            "capabilities": {"tools": {}},
            "serverInfo": server_info(),
            "instructions": server.instructions,
        }))),
        ("ping", Era::Legacy) => Ok(say(json!({}))),
        ("server/discover", Era::Modern) => Ok(say(json!({
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "instructions": server.instructions,
            "ttlMs": TTL_MS,
            "cacheScope": "public",
        }))),
        ("subscriptions/listen", Era::Modern) => {
            let Some(_) = notifications.and_then(|filter| fields::<0>(filter, [])) else {
                return Err(Fault::params("notifications must be an object: what to be told of"));
            };
            Ok(Job::Subscribe(id.clone()))
        }
        ("server/discover" | "subscriptions/listen", Era::Legacy) => {
            Err(Fault::params(format!("params._meta lacks {VERSION_KEY:?}")))
        }
        ("tools/list", _) => {
            if given(cursor).is_some() {
                return Err(Fault::params("there is no such cursor: the list has one page"));
            }
            let mut body = json!({"tools": server.tools.iter().map(Tool::shown).collect::<Vec<_>>()});
            if era == Era::Modern {
                body["ttlMs"] = TTL_MS.into();
                body["cacheScope"] = "public".into();
            }
            Ok(say(body))
        }
        ("tools/call", _) => call(server, id, era, name, given_arguments, token),
        _ => Err(no_such()),
    }
}

fn call(
    server: &Server,
    id: &Id,
    era: Era,
    name: Option<&RawValue>,
    given_arguments: Option<&RawValue>,
    token: Option<&RawValue>,
) -> Result<Job, Fault> {
    let name = string(name).ok_or_else(|| Fault::params("name must be a string: the tool's"))?;
    let tool = server.tools.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| Fault::params(format!("Unknown tool: {}", arguments::cut(&name))))?;
    let read = given(given_arguments).map_or(Ok(Map::new()), |arguments| serde_json::from_str(arguments.get()));
    // Lone surrogates and what is nested too deep are here too.
    let read = read.map_err(|e| Fault::params(format!("arguments must be an object that can be read: {e}")))?;
    Ok(match arguments::check(&tool.input, read) {
        Ok(arguments) => {
            let token = token.and_then(|token| Id::read(token.get()));
            Job::Call(Wanted { id: id.clone(), era, tool, arguments, token })
        }
        Err(words) => Job::Say(id.clone(), answer(id, era, Err(Problem::Refused(words)))),
    })
}

/// Fields of an object that may be left out.
fn object<'a, const N: usize>(
    json: Option<&'a RawValue>,
    names: [&str; N],
    what: &str,
) -> Result<[Option<&'a RawValue>; N], Fault> {
    let Some(json) = given(json) else { return Ok([None; N]) };
    fields(json, names).ok_or_else(|| Fault::params(format!("{what} must be an object that can be read")))
}

fn check_modern(version: Option<String>, capabilities: Option<&RawValue>) -> Result<(), Fault> {
    let version = version.ok_or_else(|| Fault::params(format!("{VERSION_KEY:?} must be a string")))?;
    if version != MODERN {
        let words = format!("unsupported protocol version {:?}", arguments::cut(&version));
        let data = Some(json!({"supported": [MODERN], "requested": version}));
        return Err(Fault { code: UNSUPPORTED_VERSION, words, data });
    }
    match capabilities.and_then(|capabilities| fields::<0>(capabilities, [])) {
        Some(_) => Ok(()),
        None => Err(Fault::params(format!("params._meta lacks {CAPABILITIES_KEY:?}, an object"))),
    }
}

/// The revision that `initialize` answers with.
fn agreed(wished: Option<&str>) -> &'static str {
    LEGACY.iter().find(|version| wished == Some(**version)).unwrap_or(&LEGACY[0])
}

fn server_info() -> Value {
    json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")})
}

fn result(id: &Id, era: Era, mut body: Map<String, Value>) -> String {
    if era == Era::Modern {
        body.insert("resultType".to_owned(), "complete".into());
        body.insert("_meta".to_owned(), json!({"io.modelcontextprotocol/serverInfo": server_info()}));
    }
    message::result(id, &body)
}
