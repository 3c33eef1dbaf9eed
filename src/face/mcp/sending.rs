//! The tool that types into a process.

use std::time::Duration;

use crossbeam_channel::{after, select};
use serde_json::{Value, json};

use super::given::Given;
use super::schema::{USUAL_LINES, WAIT_MS};
use super::shown::{done, last_part};
use super::tool::{Call, Done, Problem};
use super::toolbox::DeskTools;
use crate::desk::{Delivery, Keys, Kind, Target};
use crate::engine::terminal::Style;

impl DeskTools {
    pub(super) fn send_input(&self, target: &Target, given: &Given, call: &Call) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let keys = keys(given, view.kind)?;
        let sent = self.desk.type_keys(target, &keys, call.cancelled())?;
        if let Some(wait) = given.number("wait_ms") {
            let wait = wait.max(0).unsigned_abs().clamp(WAIT_MS[0], WAIT_MS[1]);
            select! {
                recv(call.cancelled()) -> _ => {}
                recv(after(Duration::from_millis(wait))) -> _ => {}
            }
        }
        let view = self.desk.view(&Target::Id(view.id)).unwrap_or(view);
        let (is_accepted, is_delivered) = (sent.status != Delivery::Undelivered, sent.status == Delivery::Delivered);
        let mut structured = json!({
            "id": view.id,
            "accepted": is_accepted,
            "delivered": is_delivered,
            "delivery_id": sent.id,
            "status": view.status.as_str(),
        });
        let mut text = match sent.status {
            Delivery::Undelivered => {
                "Nothing was sent: others were typing all the time. It may be sent again.".to_owned()
            }
            Delivery::Delivering | Delivery::Uncertain => {
                structured["delivery_uncertain"] = true.into();
                "The terminal has not taken all of it yet. Do not send it again; look at the output and the status."
                    .to_owned()
            }
            Delivery::Delivered => format!("Delivered. It is {}.", view.status.as_str()),
        };
        if given.number("wait_ms").is_some() {
            // What was sent is sent, even if the entry has gone since.
            let screen = self.desk.screen(&Target::Id(view.id)).ok();
            let page = screen.map(|screen| screen.lock().tail(USUAL_LINES, None, Style::Plain)).unwrap_or_default();
            let output = page.rows.iter().map(|row| row.text.as_str()).collect::<Vec<_>>().join("\n");
            let (_, part) = last_part(&output);
            text = format!("{text}\n{part}");
            structured["output"] = part.into();
        }
        Ok(done(text, structured))
    }
}

/// What is to be typed.
fn keys(given: &Given, kind: Kind) -> Result<Keys, Problem> {
    let text = given.text("input");
    let submit = given.flag("submit");
    let is_message = given.text("intent") != Some("interaction");
    match (text, given.list("bytes")) {
        (Some(_), Some(_)) => Err(Problem::Refused("give input or bytes, not both".into())),
        (None, None) => Err(Problem::Refused("give input (text) or bytes, such as [3] for Ctrl-C".into())),
        (None, Some(bytes)) => {
            let bytes = bytes.iter().filter_map(Value::as_u64).filter_map(|byte| u8::try_from(byte).ok());
            Ok(Keys::Bytes(bytes.collect()))
        }
        (Some(text), None) if kind == Kind::Agent && is_message && submit != Some(false) => {
            Ok(Keys::Message(text.to_owned()))
        }
        (Some(text), None) => Ok(Keys::Text { text: text.to_owned(), submit: submit.unwrap_or(true) }),
    }
}
