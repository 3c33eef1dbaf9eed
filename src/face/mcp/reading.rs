//! The tools that read what a process shows.

use serde_json::{Value, json};

use super::given::Given;
use super::schema::{MOST_LINES, MOST_RESULTS, USUAL_LINES, USUAL_RESULTS};
use super::shown::{self, done, last_part};
use super::tool::{Done, Problem};
use super::toolbox::DeskTools;
use crate::desk::Target;
use crate::engine::terminal::Style;

impl DeskTools {
    pub(super) fn output(&self, target: &Target, given: &Given) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let lines = given.amount("lines", USUAL_LINES, MOST_LINES);
        let before = given.number("before").map(|row| row.max(0).unsigned_abs());
        let colours = given.flag("colours").unwrap_or(false);
        let screen = self.desk.screen(target)?;
        let screen = screen.lock();
        let style = if colours { Style::Colours } else { Style::Plain };
        let page = screen.tail(lines, before, style);
        let is_alternate = screen.alternate_screen();
        drop(screen);
        let text = page.rows.iter().map(|row| row.text.as_str()).collect::<Vec<_>>().join("\n");
        let (left_out, part) = last_part(&text);
        let skipped = text[..left_out].matches('\n').count();
        let first = page.rows.get(skipped).map(|row| row.number);
        let older = if left_out > 0 { first } else { page.next };
        let mut structured = json!({
            "id": view.id,
            "status": view.status.as_str(),
            "output": part,
            "alternate_screen": is_alternate,
        });
        if let Some(first) = first {
            structured["first_row"] = first.into();
        }
        if let Some(older) = older {
            structured["before"] = older.into();
        }
        let shown =
            if part.is_empty() { format!("(no output; it is {})", view.status.as_str()) } else { part.to_owned() };
        Ok(done(shown, structured))
    }

    pub(super) fn raw_output(&self, target: &Target, given: &Given) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let lines = given.amount("lines", USUAL_LINES, MOST_LINES);
        let before = given.number("before").map(|byte| byte.max(0).unsigned_abs());
        let tail = self.desk.screen(target)?.lock().raw_tail(lines, before, shown::MOST_OUTPUT);
        let structured = json!({
            "id": view.id,
            "status": view.status.as_str(),
            "output": tail.text,
            "before": tail.offset,
            "total_bytes": tail.total,
        });
        Ok(done(tail.text, structured))
    }

    pub(super) fn search(&self, target: &Target, given: &Given) -> Result<Done, Problem> {
        let view = self.desk.view(target)?;
        let most = given.amount("max_results", USUAL_RESULTS, MOST_RESULTS);
        let pattern = given.text("pattern").unwrap_or_default();
        let found = self.desk.screen(target)?.lock().search(pattern, most);
        // Matches may be long lines; an answer may not.
        let longest = (shown::MOST_OUTPUT / found.rows.len().max(1)).max(80);
        let cut = |text: &str| match text.char_indices().nth(longest) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        let rows: Vec<(u64, String)> = found.rows.iter().map(|row| (row.number, cut(&row.text))).collect();
        let mut lines: Vec<String> = rows.iter().map(|(row, text)| format!("{row}: {text}")).collect();
        lines.push(format!("{} of {} matching lines", rows.len(), found.total));
        let matches: Vec<Value> = rows.into_iter().map(|(row, text)| json!({"row": row, "text": text})).collect();
        Ok(done(lines.join("\n"), json!({"id": view.id, "matches": matches, "total": found.total})))
    }
}
