//! What single parts cost, in nanoseconds: `cargo bench`, or `cargo bench -- --full` for steadier figures. What the whole host
//! costs, and against what, is measured by `examples/bench`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use a2e_proc::engine::{Config, EventKind, Host, Reply, SpawnRequest};
use a2e_proc::model::{ProcId, Stream};
use a2e_proc::wire::decode::decode;
use a2e_proc::wire::dialect::Dialect;
use a2e_proc::wire::event::EventEncoder;

fn main() {
    let time =
        if std::env::args().any(|arg| arg == "--full") { Duration::from_secs(3) } else { Duration::from_millis(200) };
    let bench = |name: &str, work: &mut dyn FnMut()| println!("{name:40} {:10.0} ns", nanoseconds(time, work));

    let process = ProcId::fresh();
    let kilobyte = "x".repeat(1023) + "\n";
    for (name, text) in [("a line of 8 bytes", "1234567\n"), ("a line of 1 KiB", kilobyte.as_str())] {
        for dialect in [Dialect::Spec, Dialect::Sdk] {
            let (mut encoder, mut out) = (EventEncoder::new(dialect), Vec::new());
            bench(&format!("{name}, {dialect:?}, of 64 in a read"), &mut || {
                out.clear();
                let mut lines = encoder.lines(&process, "request", Stream::Stdout);
                (0..64).for_each(|_| lines.text(black_box(text), None, &mut out));
            });
        }
    }
    let write = format!(
        r#"{{"type":"proc/write/req","id":"1","version":"1.0","ts":1.5,"proc_id":"{}","data":"hello\n"}}"#,
        process.as_str()
    );
    bench("a write request, decoded", &mut || assert!(matches!(decode(black_box(write.as_bytes())), Some(Ok(_)))));

    let host = Host::new(Config { allowed: vec!["cat".into(), "true".into()], ..Config::default() }).unwrap();
    let (session, events) = host.open_session();
    let spawn = |name: &str| {
        let spawned = session.spawn(&SpawnRequest { cmd: vec![name.into()], ..SpawnRequest::default() }).unwrap();
        spawned.gate.open();
        spawned.id
    };
    bench("`true`, from its spawn to its end", &mut || {
        spawn("true");
        while !matches!(events.recv().unwrap().kind, EventKind::Ended(_)) {}
    });
    let cat = spawn("cat");
    bench("a write, and what `cat` makes of it", &mut || {
        session.write(cat.as_str(), b"hello\n".to_vec(), false, Reply::new(drop));
        events.recv().unwrap();
    });
}

/// The median of so many repetitions as fit into `time`, after some to warm up.
fn nanoseconds(time: Duration, work: &mut dyn FnMut()) -> f64 {
    (0..10).for_each(|_| work());
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let began = Instant::now();
        work();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9
}
