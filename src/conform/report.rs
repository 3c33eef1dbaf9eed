//! What a run says, to people and to programs. `run` gives it every judgement as it comes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde_json::json;

use super::case::Level;
use super::judge::{Judgement, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Tap,
    Jsonl,
    Junit,
}

/// A report that was asked for: its form and its file, or standard output.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub form: Form,
    pub file: Option<String>,
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (form, file) = text.split_once('=').map_or((text, None), |(form, file)| (form, Some(file.to_owned())));
        let form = match form {
            "tap" => Form::Tap,
            "jsonl" => Form::Jsonl,
            "junit" => Form::Junit,
            other => return Err(format!("{other:?} is not a form of report; there are tap, jsonl and junit")),
        };
        Ok(Self { form, file })
    }
}

/// What became of a case after the baseline was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    AsJudged,
    /// It failed, and the baseline says that it does.
    Known,
    /// The baseline says that it fails, and it does not any more.
    NoLongerFails,
}

impl Standing {
    /// Whether the run fails by it.
    pub fn fails(self, verdict: Verdict) -> bool {
        self == Self::NoLongerFails || (self == Self::AsJudged && verdict == Verdict::Fail)
    }
}

pub struct Reporter {
    wanted: Vec<(Form, Box<dyn Write>)>,
    /// People read on standard output, unless a report goes there.
    people: Box<dyn Write>,
    progress: bool,
    total: usize,
    /// The profile's name.
    profile: String,
    seen: Vec<(Judgement, Standing)>,
}

impl Reporter {
    pub fn new(wanted: &[Wanted], total: usize, profile: &str) -> Result<Self, String> {
        let taken = wanted.iter().any(|wanted| wanted.file.is_none());
        let open = |wanted: &Wanted| -> Result<(Form, Box<dyn Write>), String> {
            Ok(match &wanted.file {
                None => (wanted.form, Box::new(std::io::stdout())),
                Some(path) => (wanted.form, Box::new(File::create(path).map_err(|e| format!("{path}: {e}"))?)),
            })
        };
        let mut wanted = wanted.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for (form, out) in &mut wanted {
            if *form == Form::Tap {
                writeln!(out, "TAP version 14\n1..{total}").map_err(|e| e.to_string())?;
            }
        }
        let people: Box<dyn Write> = if taken { Box::new(anstream::stderr()) } else { Box::new(anstream::stdout()) };
        Ok(Self {
            wanted,
            people,
            progress: std::io::stderr().is_terminal(),
            total,
            profile: profile.to_owned(),
            seen: Vec::new(),
        })
    }

    /// Takes the next judgement, and says at once what is worth it.
    pub fn add(&mut self, judgement: Judgement, standing: Standing) -> std::io::Result<()> {
        let number = self.seen.len() + 1;
        for (form, out) in &mut self.wanted {
            match form {
                Form::Tap => tap(out, number, &judgement, standing)?,
                Form::Jsonl => jsonl(out, &judgement, standing)?,
                Form::Junit => {}
            }
        }
        self.clear_progress()?;
        let failed =
            !matches!(judgement.verdict, Verdict::Pass | Verdict::Untestable) || standing == Standing::NoLongerFails;
        if failed {
            write!(self.people, "{}", for_people(&judgement, standing))?;
        }
        self.seen.push((judgement, standing));
        if self.progress && number < self.total {
            write!(std::io::stderr(), "\r{number} of {}", self.total)?;
        }
        Ok(())
    }

    fn clear_progress(&self) -> std::io::Result<()> {
        if self.progress { write!(std::io::stderr(), "\r\x1b[K") } else { Ok(()) }
    }

    /// Says what it comes to.
    pub fn finish(mut self, seconds: f64) -> std::io::Result<()> {
        self.clear_progress()?;
        for (form, out) in &mut self.wanted {
            if *form == Form::Junit {
                write!(out, "{}", junit(&self.seen, seconds))?;
            }
            out.flush()?;
        }
        write!(self.people, "{}", summary(&self.seen, &self.profile, seconds))?;
        self.people.flush()
    }
}

const BOLD: Style = Style::new().bold();

fn colour(verdict: Verdict) -> Style {
    let colour = match verdict {
        Verdict::Pass => AnsiColor::Green,
        Verdict::Fail | Verdict::HarnessError => AnsiColor::Red,
        Verdict::Warn => AnsiColor::Yellow,
        Verdict::Untestable => AnsiColor::Blue,
    };
    colour.on_default()
}

fn for_people(judgement: &Judgement, standing: Standing) -> String {
    let mut text = String::new();
    let style = colour(judgement.verdict);
    let level = judgement.level.map_or("", Level::name);
    let known = match standing {
        Standing::AsJudged => "",
        Standing::Known => " (known, by the baseline)",
        Standing::NoLongerFails => " (but the baseline says that it fails: take it out)",
    };
    let (verdict, case) = (judgement.verdict.name(), &judgement.case);
    let _ = writeln!(text, "{style}{verdict}{style:#} {BOLD}{case}{BOLD:#} {level} {}{known}", judgement.req.join(" "));
    if standing != Standing::AsJudged {
        return text;
    }
    if !judgement.about.is_empty() {
        let _ = writeln!(text, "  {}", judgement.about);
    }
    if !judgement.words.is_empty() {
        let _ = writeln!(text, "  {}", judgement.words);
    }
    for line in &judgement.exchange {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(failure) = &judgement.failure {
        let at = if failure.line > 0 { format!("line {}", failure.line) } else { "after the last line".to_owned() };
        // What a monitor says is what is wrong; what a step says is what it waited for.
        let label = if failure.rule.starts_with("monitor:") { "wrong:   " } else { "expected:" };
        let (rule, expected, came) = (&failure.rule, &failure.expected, &failure.came);
        let _ = writeln!(text, "  {at}, {rule}\n    {label} {expected}\n    came:     {came}");
    }
    for line in judgement.stderr.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev() {
        let _ = writeln!(text, "  stderr: {line}");
    }
    text
}

/// Where a requirement belongs: its id without the number.
fn area(row: &str) -> &str {
    row.split('-').next().unwrap_or(row)
}

fn summary(seen: &[(Judgement, Standing)], profile: &str, seconds: f64) -> String {
    const KINDS: [Verdict; 5] =
        [Verdict::Pass, Verdict::Fail, Verdict::Warn, Verdict::Untestable, Verdict::HarnessError];
    let mut areas: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut all = [0; 5];
    for (judgement, _) in seen {
        let kind = KINDS.iter().position(|kind| *kind == judgement.verdict).unwrap_or(0);
        all[kind] += 1;
        let mut of: Vec<_> = judgement.req.iter().map(|row| area(row)).collect();
        of.sort_unstable();
        of.dedup();
        of.into_iter().for_each(|area| areas.entry(area).or_default()[kind] += 1);
    }
    let mut text =
        format!("\n{BOLD}{:<10} {:>6} {:>6} {:>6} {:>11}{BOLD:#}\n", "cases for", "pass", "fail", "warn", "untestable");
    for (area, counts) in &areas {
        let style = colour(if counts[1] > 0 { Verdict::Fail } else { Verdict::Pass });
        let [pass, fail, warn, untestable, _] = counts;
        let _ = writeln!(text, "{style}{area:<10}{style:#} {pass:>6} {fail:>6} {warn:>6} {untestable:>11}");
    }
    let known = seen.iter().filter(|(_, standing)| *standing == Standing::Known).count();
    let said = KINDS.iter().zip(all).filter(|(_, count)| *count > 0);
    let said: Vec<_> = said.map(|(kind, count)| format!("{count} {}", kind.name())).collect();
    let known = if known > 0 { format!(" ({known} known)") } else { String::new() };
    let _ = writeln!(
        text,
        "\n{} with the profile {profile}: {}{known}; {seconds:.1} s",
        cases(seen.len()),
        said.join(", ")
    );
    text
}

fn cases(count: usize) -> String {
    format!("{count} case{}", if count == 1 { "" } else { "s" })
}

fn tap(out: &mut dyn Write, number: usize, judgement: &Judgement, standing: Standing) -> std::io::Result<()> {
    let ok = matches!(judgement.verdict, Verdict::Pass | Verdict::Untestable | Verdict::Warn)
        && standing != Standing::NoLongerFails;
    let directive = match (judgement.verdict, standing) {
        (_, Standing::Known) => " # TODO known".to_owned(),
        (Verdict::Untestable, _) => format!(" # SKIP {}", judgement.words),
        (Verdict::Warn, _) => " # TODO warn".to_owned(),
        _ => String::new(),
    };
    writeln!(out, "{}ok {number} - {}{directive}", if ok { "" } else { "not " }, judgement.case)?;
    if let Some(failure) = &judgement.failure {
        let block =
            json!({"rule": failure.rule, "line": failure.line, "expected": failure.expected, "came": failure.came});
        writeln!(out, "  ---\n  {block}\n  ...")?;
    }
    Ok(())
}

fn jsonl(out: &mut dyn Write, judgement: &Judgement, standing: Standing) -> std::io::Result<()> {
    let failure = judgement.failure.as_ref();
    let failure = failure.map(|f| json!({"rule": f.rule, "line": f.line, "expected": f.expected, "came": f.came}));
    let line = json!({
        "case": judgement.case,
        "level": judgement.level.map(Level::name),
        "req": judgement.req,
        "verdict": judgement.verdict.name(),
        "baseline": match standing {
            Standing::AsJudged => None,
            Standing::Known => Some("known"),
            Standing::NoLongerFails => Some("no-longer-fails"),
        },
        "seconds": judgement.seconds,
        "failure": failure,
        "words": judgement.words,
        "exchange": judgement.exchange,
        "stderr": judgement.stderr,
    });
    writeln!(out, "{line}")
}

fn junit(seen: &[(Judgement, Standing)], seconds: f64) -> String {
    let failures = seen.iter().filter(|(judgement, standing)| standing.fails(judgement.verdict)).count();
    let errors = seen.iter().filter(|(judgement, _)| judgement.verdict == Verdict::HarnessError).count();
    let skipped = seen.iter().filter(|(judgement, _)| judgement.verdict == Verdict::Untestable).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"a2e-proc conform\" tests=\"{}\" failures=\"{failures}\" \
         errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        seen.len()
    );
    for (judgement, standing) in seen {
        let (area, name) = judgement.case.split_once('/').unwrap_or(("", &judgement.case));
        let _ = write!(
            text,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            xml(area),
            xml(name),
            judgement.seconds
        );
        let body = xml(&judgement.exchange.join("\n"));
        let words = |judgement: &Judgement| match &judgement.failure {
            Some(failure) => format!("{}: expected {}; came {}", failure.rule, failure.expected, failure.came),
            None => judgement.words.clone(),
        };
        let words = xml(&words(judgement));
        let _ = match judgement.verdict {
            Verdict::Untestable => writeln!(text, "><skipped message=\"{words}\"/></testcase>"),
            Verdict::HarnessError => writeln!(text, "><error message=\"{words}\">{body}</error></testcase>"),
            verdict if standing.fails(verdict) => {
                writeln!(text, "><failure message=\"{words}\">{body}</failure></testcase>")
            }
            Verdict::Warn | Verdict::Fail => writeln!(text, "><system-out>{words}\n{body}</system-out></testcase>"),
            Verdict::Pass => writeln!(text, "/>"),
        };
    }
    text + "</testsuite>\n"
}

/// Text for XML, which cannot hold most control characters at all.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
