//! The conformance runner, `a2e-proc conform`: holds any host, or any client, to the cases of `conformance/`. Beside the floors:
//! it knows the protocol from the kit's data alone and uses nothing of the host, so that the two cannot share a mistake.

mod canned;
mod case;
mod collecting;
mod connect;
mod exchange;
mod golden;
mod http;
mod judge;
mod kit;
mod leftovers;
mod lines;
mod monitor;
mod pattern;
mod peer;
mod play;
mod program;
mod report;
mod selftest;
mod steps;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use clap::{Args, ValueEnum};
use globset::{Glob, GlobSet, GlobSetBuilder};

use case::{Case, Level, Role};
use connect::Connect;
use judge::{Bench, Judgement, Verdict};
use kit::{Kit, Profile};
use report::{Reporter, Standing, Wanted};

/// The cases of which levels are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AtLeast {
    Must,
    Should,
    May,
}

/// What the command line says.
#[derive(Args)]
pub struct Options {
    /// The host to test, as a shell command line; without it, this program's own `serve`
    #[arg(long, value_name = "CMD…", conflicts_with = "client")]
    host: Option<String>,
    /// Test a client instead: the runner plays the host, on the client's standard streams
    #[arg(long, value_name = "CMD…")]
    client: Option<String>,
    /// Play over a connection: unix:PATH, tcp:HOST:PORT or http:HOST:PORT. In it and in CMD, {tmp} is the case's temporary
    /// folder, and {port} a free port of its own
    #[arg(long, value_name = "ADDRESS", conflicts_with = "client")]
    connect: Option<String>,
    /// The host at ADDRESS runs already, started by somebody else: none is started here
    #[arg(long, requires = "connect", conflicts_with = "host")]
    running: bool,
    /// What the host under test has and claims; see conformance/README.md
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Read the kit from this folder instead of the copy in this program
    #[arg(long, value_name = "DIR")]
    kit: Option<PathBuf>,
    /// Only cases whose id, or one of whose requirements, matches (repeatable); * matches everything, / too
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// Only cases of this level or above
    #[arg(long, value_enum, default_value = "may")]
    level: AtLeast,
    /// How many cases at once; they wait more than they work [default: three for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Multiplies the time that a step may take, for slow machines
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    time_scale: f64,
    /// A file with the ids of cases that are known to fail, one a line; one that passes is an error
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Also report as tap, jsonl or junit, to a file with =FILE (repeatable)
    #[arg(long, value_name = "FORM[=FILE]")]
    report: Vec<Wanted>,
    /// List the cases instead
    #[arg(long)]
    list: bool,
    /// Say what a case or a requirement is about instead
    #[arg(long, value_name = "CASE|REQ")]
    explain: Option<String>,
    /// Check this runner against the kit's self-tests instead
    #[arg(long)]
    self_test: bool,
    /// Write the golden lines to this folder instead
    #[arg(long, value_name = "DIR")]
    write_golden: Option<PathBuf>,
}

/// What is shown below the options.
pub const HELP: &str = "\
Exit codes: 0 nothing failed; 1 a case failed, or one of the baseline no longer does; 2 the command line or a file is wrong;
3 the runner could not do its part.
Examples:
  a2e-proc conform                                               test this program's own host
  a2e-proc conform --host 'python3 my_host.py' --profile my.json test yours
  a2e-proc conform --connect http:127.0.0.1:{port}               over HTTP, a host for each case
  a2e-proc conform --connect tcp:127.0.0.1:7000 --running        one that somebody else has started
  a2e-proc conform --explain R13-1                               what a requirement says, and which cases hold it";

/// Why there is no run.
pub enum Fault {
    /// The command line or a file is wrong.
    Usage(String),
    /// This program could not do its part.
    Harness(String),
}

const FAILED: u8 = 1;
const HARNESS: u8 = 3;

/// Does what the command line says. The exit code, or why there is none.
pub fn run(options: &Options) -> Result<u8, Fault> {
    let usage = Fault::Usage;
    let harness = |e: std::io::Error| Fault::Harness(e.to_string());
    let kit = match &options.kit {
        None => Kit::built_in(),
        Some(folder) => Kit::in_folder(folder).map_err(usage)?,
    };
    if let Some(folder) = &options.write_golden {
        golden::write(folder).map_err(harness)?;
        return Ok(0);
    }
    if let Some(what) = &options.explain {
        let text = explain(&kit, what).map_err(usage)?;
        return write!(anstream::stdout(), "{text}").map(|()| 0).map_err(harness);
    }
    if options.self_test {
        return self_test(&kit);
    }
    if !(options.time_scale.is_finite() && options.time_scale > 0.0) {
        return Err(usage(format!("--time-scale is {}; it is a number above 0", options.time_scale)));
    }
    let role = if options.client.is_some() { Role::Client } else { Role::Host };
    let (cases, mut malformed) = chosen(&kit, role, options).map_err(usage)?;
    if cases.is_empty() && malformed.is_empty() {
        return Err(usage("no case matches; --list shows them all".to_owned()));
    }
    if options.list {
        let line = |case: &Case| format!("{:<44} {:<6} {}\n", case.id, case.level.name(), case.about);
        let text: String = cases.iter().map(line).collect();
        return write!(std::io::stdout(), "{text}").map(|()| 0).map_err(harness);
    }
    let profile = profile(&kit, options).map_err(usage)?;
    let schemas = kit.schemas(profile.dialect).map_err(usage)?;
    let known =
        options.baseline.as_ref().map_or_else(|| Ok(BTreeSet::new()), |path| baseline(&kit, path)).map_err(usage)?;
    let connect = options.connect.as_ref().map(|address| Connect::new(address, options.running)).transpose();
    let connect = connect.map_err(usage)?;
    if options.running
        && let Some(connect) = &connect
    {
        connect.try_running().map_err(Fault::Harness)?;
    }
    // Cases that share an address cannot have their hosts at the same time.
    let takes_turns = connect.as_ref().is_some_and(|connect| !connect.running && !connect.differs());
    let bench = Bench {
        command: command(options, connect.as_ref()).map_err(harness)?,
        connect,
        profile: &profile,
        schemas: &schemas,
        time_scale: options.time_scale,
    };
    let jobs = options.jobs.unwrap_or_else(|| 3 * std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let jobs = if takes_turns { 1 } else { jobs };

    let started = Instant::now();
    let mut reporter = Reporter::new(&options.report, cases.len() + malformed.len(), &profile.name).map_err(usage)?;
    let mut worst = 0;
    let mut take = |judgement: Judgement| {
        let standing = match (known.contains(&judgement.case), judgement.verdict) {
            (true, Verdict::Fail) => Standing::Known,
            (true, Verdict::Pass) => Standing::NoLongerFails,
            _ => Standing::AsJudged,
        };
        if judgement.verdict == Verdict::HarnessError {
            worst = HARNESS;
        } else if standing.fails(judgement.verdict) {
            worst = worst.max(FAILED);
        }
        reporter.add(judgement, standing)
    };
    malformed.drain(..).try_for_each(&mut take).map_err(harness)?;
    judge_all(&bench, &cases, jobs, &mut take).map_err(harness)?;
    reporter.finish(started.elapsed().as_secs_f64()).map_err(harness)?;
    Ok(worst)
}

fn self_test(kit: &Kit) -> Result<u8, Fault> {
    let outcome = selftest::run(kit).map_err(Fault::Usage)?;
    let selftest::Outcome { pass, fail, invalid, wrong } = &outcome;
    let mut text: String = wrong.iter().map(|words| format!("wrong: {words}\n")).collect();
    text +=
        &format!("{pass} that must pass, {fail} that must fail, {invalid} that are malformed: {} wrong\n", wrong.len());
    write!(std::io::stdout(), "{text}").map_err(|e| Fault::Harness(e.to_string()))?;
    Ok(if wrong.is_empty() { 0 } else { HARNESS })
}

/// Judges the cases, some at once, and hands each judgement on as it comes.
fn judge_all(
    bench: &Bench,
    cases: &[Case],
    jobs: usize,
    take: &mut impl FnMut(Judgement) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, judged) = channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            let (sender, next) = (sender.clone(), &next);
            let judge = move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send(bench.judge(case)).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("judge".to_owned()).spawn_scoped(scope, judge)?;
        }
        drop(sender);
        judged.into_iter().try_for_each(take)
    })
}

/// The cases that the options choose, and those among them that cannot be read.
fn chosen(kit: &Kit, role: Role, options: &Options) -> Result<(Vec<Case>, Vec<Judgement>), String> {
    let filter = globs(&options.filter)?;
    let least = match options.level {
        AtLeast::Must => Level::Must,
        AtLeast::Should => Level::Should,
        AtLeast::May => Level::May,
    };
    let wanted = |name: &str| filter.is_empty() || filter.is_match(name);
    let (mut cases, mut malformed) = (Vec::new(), Vec::new());
    for (id, case) in kit.cases(role) {
        match case {
            Ok(case) if case.level >= least && (wanted(&id) || case.req.iter().any(|row| wanted(row))) => {
                cases.push(case)
            }
            Ok(_) => {}
            Err(words) if wanted(&id) => malformed.push(Judgement::malformed(&id, words)),
            Err(_) => {}
        }
    }
    Ok((cases, malformed))
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| format!("--filter: {e}"))?);
    }
    set.build().map_err(|e| format!("--filter: {e}"))
}

fn profile(kit: &Kit, options: &Options) -> Result<Profile, String> {
    let (name, text) = match &options.profile {
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
            (name, text)
        }
        None => {
            // Of a host that nothing is known of, only what the specification asks of all is expected.
            let name =
                if options.host.is_none() && !options.running { "profile/a2e-proc.json" } else { "profile/spec.json" };
            let text = kit.text(name).ok_or_else(|| format!("the kit has no {name}; name a --profile"))?;
            (name.to_owned(), text.to_owned())
        }
    };
    Profile::parse(&text).map_err(|e| format!("{name}: {e}"))
}

fn command(options: &Options, connect: Option<&Connect>) -> std::io::Result<String> {
    if let Some(command) = options.host.as_ref().or(options.client.as_ref()) {
        return Ok(command.clone());
    }
    let own = quoted(&std::env::current_exe()?.display().to_string());
    Ok(match connect {
        None => format!("{own} serve"),
        Some(connect) => format!("{own} serve --listen {}", connect.quoted()),
    })
}

/// A text as one word of a shell's command line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn baseline(kit: &Kit, path: &std::path::Path) -> Result<BTreeSet<String>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let known: BTreeSet<_> = lines.filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect();
    let is_case = |id: &String| kit.text(&format!("cases/{id}.jsonl")).is_some();
    match known.iter().find(|id| !is_case(id)) {
        Some(id) => Err(format!("{name}: there is no case {id:?}")),
        None => Ok(known),
    }
}

fn explain(kit: &Kit, what: &str) -> Result<String, String> {
    let rows = kit.rows()?;
    let path = format!("cases/{what}.jsonl");
    if let Some(text) = kit.text(&path) {
        let case = case::parse(what, text)?;
        let mut said = format!("{}  {}\n{}\n", case.id, case.level.name(), case.about);
        for row in rows.iter().filter(|row| case.req.contains(&row.id)) {
            said += &format!("holds {} ({}): {}\n", row.id, row.source, row.statement);
        }
        if !case.needs.is_empty() {
            said += &format!("needs {}\n", case.needs.join(", "));
        }
        return Ok(format!("{said}conformance/{path}:\n{text}"));
    }
    let row = rows.iter().find(|row| row.id.eq_ignore_ascii_case(what));
    let row = row.ok_or_else(|| {
        // What has it in its name, or stands beside it.
        let (what_lower, stem) = (what.to_ascii_lowercase(), what.rfind(['-', '/']).map_or(what, |end| &what[..=end]));
        let beside = |id: &str| id.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem));
        let like = |id: &&str| id.to_ascii_lowercase().contains(&what_lower) || beside(id);
        let cases = kit.files("cases", ".jsonl").map(|(id, _)| id);
        let near: Vec<_> = rows.iter().map(|row| row.id.as_str()).chain(cases).filter(like).take(8).collect();
        let near =
            if near.is_empty() { "--list shows the cases".to_owned() } else { format!("like it: {}", near.join(", ")) };
        format!("there is no case and no requirement {what:?}; {near}")
    })?;
    let mut said = format!("{}  {}  {}\n{}\n", row.id, row.level.name(), row.source, row.statement);
    for case in &row.cases {
        said += &format!("held by {case}\n");
    }
    if let Some(reason) = &row.excluded {
        said += &format!("not tested: {reason}\n");
    }
    Ok(said)
}

#[cfg(test)]
mod tests;
