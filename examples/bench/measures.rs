//! What is measured, and against what.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::floor::{self, Relay, bare};
use crate::host::Host;

/// How much is measured.
pub struct Plan {
    /// Each figure is the median of so many.
    pub runs: usize,
    /// Lines of the throughput measures.
    lines: u32,
    /// Repetitions of what takes microseconds.
    rounds: usize,
    /// Processes that count as many.
    many: usize,
    /// Seconds of idling.
    idle: u64,
    /// Only measures whose name holds this.
    pub only: Option<String>,
}

impl Plan {
    /// What `BENCHMARKS.md` is made of.
    pub fn full() -> Self {
        Self { runs: 5, lines: 3_000_000, rounds: 500, many: 1_000, idle: 10, only: None }
    }

    /// A look.
    pub fn quick() -> Self {
        Self { runs: 1, lines: 500_000, rounds: 100, many: 200, idle: 2, only: None }
    }
}

/// One figure: the host's, what it is compared with, and the ratio that was asked for.
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub host: f64,
    /// Absent if the figure stands for itself.
    pub base: Option<f64>,
    pub base_name: &'static str,
    /// The median of the runs' own ratios; of a figure without a comparison, the figure.
    pub ratio: f64,
    pub goal: Goal,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    None,
}

impl Goal {
    /// Whether `ratio` is that; `None` if nothing was asked for.
    pub fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::None => None,
        }
    }
}

/// All rows, each measured `plan.runs` times, the host and its comparison by turns.
pub fn all(plan: &Plan) -> Vec<Row> {
    let mut rows = Rows { plan, rows: Vec::new() };
    lines(&mut rows);
    spawns(&mut rows);
    round_trips(&mut rows);
    memory(&mut rows);
    growth(&mut rows);
    rows.rows
}

struct Rows<'a> {
    plan: &'a Plan,
    rows: Vec<Row>,
}

impl Rows<'_> {
    fn wants(&self, name: &str) -> bool {
        self.plan.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }

    /// One row of a pair that is measured by `measure`, the host's figure first.
    fn pair(
        &mut self,
        name: &str,
        unit: &'static str,
        base_name: &'static str,
        goal: Goal,
        mut measure: impl FnMut() -> (f64, f64),
    ) {
        self.pairs(&[(name, unit, goal, base_name)], || vec![measure()]);
    }

    /// Several rows that come of one measurement.
    fn pairs(
        &mut self,
        names: &[(&str, &'static str, Goal, &'static str)],
        mut measure: impl FnMut() -> Vec<(f64, f64)>,
    ) {
        if !names.iter().any(|(name, ..)| self.wants(name)) {
            return;
        }
        let runs: Vec<Vec<(f64, f64)>> = (0..self.plan.runs).map(|_| measure()).collect();
        for (at, (name, unit, goal, base_name)) in names.iter().enumerate() {
            let of = |pick: fn(&(f64, f64)) -> f64| median(runs.iter().map(|run| pick(&run[at])).collect());
            let row = Row {
                name: (*name).to_owned(),
                unit,
                host: of(|run| run.0),
                base: Some(of(|run| run.1)),
                base_name,
                ratio: of(|run| run.0 / run.1),
                goal: *goal,
            };
            eprintln!("{}: {:.3}", row.name, row.ratio);
            self.rows.push(row);
        }
    }

    fn figure(&mut self, name: &str, unit: &'static str, goal: Goal, value: f64) {
        eprintln!("{name}: {value:.2} {unit}");
        let (name, base_name) = (name.to_owned(), "");
        self.rows.push(Row { name, unit, host: value, base: None, base_name, ratio: value, goal });
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The 50th and the 99th percentile of so many rounds, in microseconds.
fn percentiles(rounds: usize, mut round: impl FnMut() -> Duration) -> (f64, f64) {
    let mut times: Vec<f64> = (0..rounds).map(|_| round().as_secs_f64() * 1e6).collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn lines(rows: &mut Rows<'_>) {
    let total = rows.plan.lines;
    let of_host = |count: usize, cmd: &[&str]| {
        let mut host = Host::start();
        timed(|| {
            for _ in 0..count {
                host.ask_to_spawn(cmd);
            }
            host.sink(count);
        })
        .as_secs_f64()
    };
    for (count, least) in [(1, 0.8), (8, 0.7), (64, 0.7)] {
        let each = (total / count).to_string();
        let cmd = ["seq", each.as_str()];
        let name = format!("lines, {count} process{}", if count == 1 { "" } else { "es" });
        let rate = |seconds: f64| f64::from(total) / seconds;
        rows.pair(&name, "lines/s", "two threads, no host", Goal::AtLeast(least), || {
            (rate(of_host(count as usize, &cmd)), rate(floor::seconds(count as usize, &cmd)))
        });
    }

    let file = std::env::temp_dir().join(format!("a2e-proc-bench-{}", std::process::id()));
    let line = "x".repeat(1023) + "\n";
    let count = total as usize / 15;
    std::fs::write(&file, line.repeat(count)).unwrap();
    let cmd = ["cat", file.to_str().unwrap()];
    let rate = |seconds: f64| (count * line.len()) as f64 / seconds / 1e6;
    rows.pair("lines of 1 KiB", "MB/s", "two threads, no host", Goal::AtLeast(0.7), || {
        (rate(of_host(1, &cmd)), rate(floor::seconds(1, &cmd)))
    });
    std::fs::remove_file(&file).unwrap();
}

/// What [`floor::relay`] is called: it shows what of a figure is the price of asking another process at all.
const A_RELAY: &str = "a relay with `std::process`";

fn spawns(rows: &mut Rows<'_>) {
    let rounds = rows.plan.rounds;
    let std = "Command::spawn with three pipes";
    let names = [
        ("spawn answer, p50", "µs", Goal::AtMost(1.5), std),
        ("spawn answer, p99", "µs", Goal::None, std),
        ("spawn answer, p50", "µs", Goal::None, A_RELAY),
        ("spawn answer of a relay, p50", "µs", Goal::None, std),
    ];
    rows.pairs(&names, || {
        let mut host = Host::start();
        let of_host = percentiles(rounds, || {
            let start = Instant::now();
            host.spawn(&["true"]);
            let took = start.elapsed();
            host.end();
            took
        });
        let of_std = percentiles(rounds, || {
            let start = Instant::now();
            let mut child = bare(&["true"]);
            let took = start.elapsed();
            child.wait().unwrap();
            took
        });
        let mut relay = Relay::start();
        let of_relay = percentiles(rounds, || {
            let took = timed(|| relay.ask("spawn true"));
            relay.ask("wait");
            took
        });
        relay.finish();
        vec![(of_host.0, of_std.0), (of_host.1, of_std.1), (of_host.0, of_relay.0), (of_relay.0, of_std.0)]
    });

    let rate = |took: Duration| rounds as f64 / took.as_secs_f64();
    let of_host = || {
        let mut host = Host::start();
        rate(timed(|| {
            for _ in 0..rounds {
                host.ask_to_spawn(&["true"]);
                host.end();
            }
        }))
    };
    rows.pair("cycles of `true`", "1/s", "Command and three threads", Goal::AtLeast(0.7), || {
        let with_threads = timed(|| (0..rounds).for_each(|_| cycle_with_threads()));
        (of_host(), rate(with_threads))
    });
    rows.pair("cycles of `true`", "1/s", "Command and wait", Goal::None, || {
        let bare_cycles = timed(|| {
            for _ in 0..rounds {
                bare(&["true"]).wait().unwrap();
            }
        });
        (of_host(), rate(bare_cycles))
    });

    rows.pair("start to handshake", "µs", "start and end of `true`", Goal::AtMost(3.0), || {
        let of_host = percentiles(rounds / 5, || {
            let start = Instant::now();
            let _host = Host::start();
            start.elapsed()
        });
        let of_true = percentiles(rounds / 5, || timed(|| assert!(Command::new("true").status().unwrap().success())));
        (of_host.0, of_true.0)
    });
}

fn cycle_with_threads() {
    let mut child = bare(&["true"]);
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = thread::spawn(move || BufReader::new(stdout).lines().count());
    let err = thread::spawn(move || BufReader::new(stderr).lines().count());
    let wait = thread::spawn(move || child.wait().unwrap());
    out.join().unwrap();
    err.join().unwrap();
    wait.join().unwrap();
}

fn round_trips(rows: &mut Rows<'_>) {
    let rounds = rows.plan.rounds;
    let pipes = "a raw pipe pair";
    let names = [
        ("echo through `cat`, p50", "µs", Goal::AtMost(2.5), pipes),
        ("echo through `cat`, p99", "µs", Goal::None, pipes),
    ];
    rows.pairs(&names, || {
        let mut host = Host::start();
        let proc_id = host.spawn(&["cat"]);
        let of_host = percentiles(rounds * 4, || timed(|| host.echo(&proc_id)));
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), BufReader::new(cat.stdout.take().unwrap()));
        let mut line = String::new();
        let of_pipes = percentiles(rounds * 4, || {
            timed(|| {
                stdin.write_all(b"hello\n").unwrap();
                line.clear();
                stdout.read_line(&mut line).unwrap();
            })
        });
        drop(stdin);
        cat.wait().unwrap();
        vec![(of_host.0, of_pipes.0), (of_host.1, of_pipes.1)]
    });

    let std = "kill and wait";
    let names = [
        ("kill to terminal event, p50", "µs", Goal::AtMost(1.5), std),
        ("kill to terminal event, p50", "µs", Goal::None, A_RELAY),
        ("kill to answer of a relay, p50", "µs", Goal::None, std),
    ];
    rows.pairs(&names, || {
        let mut host = Host::start();
        let of_host = kills(&mut host, rounds, "SIGTERM");
        let of_std = percentiles(rounds, || {
            let mut child = bare(&["sleep", "1000"]);
            thread::sleep(RUNS);
            let pid = Pid::from_child(&child);
            timed(|| {
                kill_process(pid, Signal::TERM).unwrap();
                child.wait().unwrap();
            })
        });
        let mut relay = Relay::start();
        let of_relay = percentiles(rounds, || {
            relay.ask("spawn sleep");
            thread::sleep(RUNS);
            timed(|| relay.ask("kill"))
        });
        relay.finish();
        vec![(of_host, of_std.0), (of_host, of_relay.0), (of_relay.0, of_std.0)]
    });
}

/// Until a process that was spawned has certainly got as far as sleeping: its end is measured, not its beginning.
const RUNS: Duration = Duration::from_millis(3);

fn kills(host: &mut Host, rounds: usize, signal: &str) -> f64 {
    percentiles(rounds, || {
        let proc_id = host.spawn(&["sleep", "1000"]);
        thread::sleep(RUNS);
        timed(|| host.kill(&proc_id, signal))
    })
    .0
}

fn memory(rows: &mut Rows<'_>) {
    if !rows.wants("memory") && !rows.wants("idle") {
        return;
    }
    let (many, idle) = (rows.plan.many, rows.plan.idle);
    let mib = |host: &Host| host.memory() / 1024.0;
    let mut host = Host::start();
    rows.figure("memory, idle", "MiB", Goal::AtMost(5.0), mib(&host));
    let mut live = 0;
    for (count, goal) in [(100, Goal::None), (many, Goal::AtMost(48.0))] {
        (live..count).for_each(|_| drop(host.spawn(&["cat"])));
        live = count;
        rows.figure(&format!("memory, {count} idle processes"), "MiB", goal, mib(&host));
    }
    thread::sleep(Duration::from_secs(1));
    let before = host.ticks();
    thread::sleep(Duration::from_secs(idle));
    // Ticks are hundredths of a second.
    let percent = (host.ticks() - before) / idle as f64;
    rows.figure(&format!("processor time, {many} idle processes"), "%", Goal::AtMost(0.5), percent);
    host.finish();

    let mut host = Host::start();
    host.ask_to_spawn(&["seq", "100000000"]);
    thread::sleep(Duration::from_secs(idle.min(3)));
    rows.figure("memory, one flood and an agent that does not read", "MiB", Goal::None, mib(&host));
}

/// What grows with the number of live processes. Nothing should.
fn growth(rows: &mut Rows<'_>) {
    let (rounds, many) = (rows.plan.rounds / 5, rows.plan.many);
    let names: Vec<(String, &'static str)> =
        ["spawn answer", "status", "kill to terminal event", "echo through `cat`", "end of all, for each"]
            .map(|what| (format!("{what}, {many} live"), "µs"))
            .into();
    let names: Vec<_> = names.iter().map(|(name, unit)| (name.as_str(), *unit, Goal::AtMost(1.3), "10 live")).collect();
    rows.pairs(&names, || {
        let (few, many) = (costs(10, rounds), costs(many, rounds));
        many.into_iter().zip(few).collect()
    });
}

/// The cost of one more spawn, of a status, a kill, an echo, and of the end of each, with so many processes alive.
fn costs(live: usize, rounds: usize) -> Vec<f64> {
    let mut host = Host::start();
    let ids: Vec<String> = (0..live).map(|_| host.spawn(&["cat"])).collect();
    let spawn = percentiles(rounds, || {
        let start = Instant::now();
        host.spawn(&["true"]);
        let took = start.elapsed();
        host.end();
        took
    });
    let status = percentiles(rounds * 5, || timed(|| host.status(&ids[live / 2])));
    let kill = kills(&mut host, rounds, "SIGTERM");
    let echo = percentiles(rounds * 5, || timed(|| host.echo(&ids[live / 2])));
    let end = timed(|| host.finish()).as_secs_f64() * 1e6 / live as f64;
    vec![spawn.0, status.0, kill, echo.0, end]
}
