//! The audit log's file: rotated, full, moved, gone, shared, or not taken; the session goes on.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::audit::{Dir, Plain, entries, entry, lines, lost};
use common::{Host, binary, system};
use serde_json::Value;

#[test]
fn a_file_that_is_full_is_rotated_and_so_many_are_kept() {
    const MAX: u64 = 2000;
    let dir = Dir::new();
    let file = dir.file("audit.log");
    for (keep, files) in [("2", vec![".2", ".1", ""]), ("1", vec![".1", ""]), ("0", vec![""])] {
        let mut host = Plain::start(&["--audit", &file, "--audit-max-bytes", "2000", "--audit-keep", keep]);
        (0..50).for_each(|_| host.ping());
        assert_eq!(host.end(), "");
        let names: Vec<String> = files.iter().map(|ending| format!("{file}{ending}")).collect();
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), names.len());
        let ids: Vec<String> =
            names.iter().flat_map(lines).map(|line| line["req_id"].as_str().unwrap().to_owned()).collect();
        // What is left are the last ones, with no gap.
        let last: Vec<String> = (51 - ids.len()..=50).map(|n| format!("{n:05}")).collect();
        assert_eq!(ids, last);
        for name in names {
            let there = fs::metadata(&name).unwrap();
            assert!(keep == "0" || there.len() < MAX, "{name}: {}", there.len());
            assert_eq!(there.permissions().mode() & 0o777, 0o600);
            fs::remove_file(name).unwrap();
        }
    }
}

#[test]
fn a_full_disk_is_said_once_and_stops_nothing() {
    let mut host = Plain::start(&["--audit", "/dev/full"]);
    host.ping();
    let said = host.stderr_line();
    assert!(said.contains("the audit log /dev/full cannot be written"), "{said}");
    (0..20).for_each(|_| host.ping());
    assert_eq!(host.end(), "");
}

#[test]
fn a_directory_that_goes_and_comes_back_is_said_twice_and_stops_nothing() {
    let dir = Dir::new();
    let inner = dir.file("inner");
    fs::create_dir(&inner).unwrap();
    let file = format!("{inner}/audit.log");
    let mut host = Plain::start(&["--audit", &file]);
    host.ping();
    assert!(system::eventually(common::PATIENCE, || lines(&file).len() == 1));
    fs::remove_dir_all(&inner).unwrap();
    host.ping();
    let said = host.stderr_line();
    assert!(said.contains(&format!("the audit log {file} cannot be written")), "{said}");
    (0..5).for_each(|_| host.ping());
    fs::create_dir(&inner).unwrap();
    host.ping();
    let said = host.stderr_line();
    assert!(said.contains("is written again"), "{said}");
    host.ping();
    assert_eq!(host.end(), "");
    let lines = lines(&file);
    assert_eq!(lines[0]["type"], "audit/lost", "{lines:?}");
    // Those that came while the directory was there again may have been written.
    assert!(lost(&lines) >= 1 && lost(&lines) + entries(&lines) as u64 == 8, "{lines:?}");
}

#[test]
fn a_file_that_is_moved_away_is_made_again() {
    let dir = Dir::new();
    let (file, moved) = (dir.file("audit.log"), dir.file("moved.log"));
    let mut host = Plain::start(&["--audit", &file]);
    host.ping();
    assert!(system::eventually(common::PATIENCE, || lines(&file).len() == 1));
    fs::rename(&file, &moved).unwrap();
    host.ping();
    assert_eq!(host.end(), "");
    assert_eq!((lines(&moved).len(), lines(&file).len()), (1, 1));
}

#[test]
fn a_line_that_another_run_left_torn_is_ended_first() {
    let dir = Dir::new();
    let file = dir.file("audit.log");
    fs::write(&file, "{\"ts\": 1, \"cut o").unwrap();
    let mut host = Plain::start(&["--audit", &file]);
    host.ping();
    assert_eq!(host.end(), "");
    let text = fs::read_to_string(&file).unwrap();
    let (torn, rest) = text.split_once('\n').unwrap();
    assert!(torn.ends_with("cut o"), "{text}");
    assert_eq!(entry(rest.trim_end())["req_id"], "00001");
}

#[test]
fn a_file_that_cannot_give_up_its_name_takes_no_old_ones_along() {
    let dir = Dir::new();
    let file = dir.file("audit.log");
    for number in 1..=3 {
        fs::write(format!("{file}.{number}"), format!("{number}")).unwrap();
    }
    // Nothing can be renamed to a directory.
    fs::create_dir(format!("{file}.0")).unwrap();
    let mut host = Plain::start(&["--audit", &file, "--audit-max-bytes", "500", "--audit-keep", "3"]);
    (0..20).for_each(|_| host.ping());
    let said = host.stderr_line();
    assert!(said.contains("cannot be rotated"), "{said}");
    assert_eq!(host.end(), "");
    assert_eq!(lines(&file).len(), 20);
    for number in 1..=3 {
        assert_eq!(fs::read_to_string(format!("{file}.{number}")).unwrap(), format!("{number}"));
    }
}

#[test]
fn a_log_that_nobody_takes_holds_nothing_up_and_says_what_it_lost() {
    const PINGS: usize = 12_000;
    let dir = Dir::new();
    let pipe = dir.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || File::open(pipe).unwrap()
    });
    let mut host = Host::start(&["--audit", &pipe]);
    let reader = reader.join().unwrap();
    // More than may wait: 8 MiB.
    let pad = "x".repeat(1000);
    for n in 0..PINGS {
        host.send_raw(format!("{{\"type\":\"ping\",\"id\":\"{n}-{pad}\"}}\n").as_bytes());
        host.wait_next();
    }
    let taken = std::thread::spawn(move || BufReader::new(reader).lines().map(|line| entry(&line.unwrap())).collect());
    host.finish();
    let taken: Vec<Value> = taken.join().unwrap();
    assert!(lost(&taken) > 0);
    assert_eq!(lost(&taken) + entries(&taken) as u64, PINGS as u64 + 1);
}

#[test]
fn two_hosts_with_one_file_do_not_mix_their_lines() {
    const PINGS: usize = 3000;
    let dir = Dir::new();
    let file = dir.file("audit.log");
    let flood: String = (0..PINGS).map(|n| format!("{{\"type\":\"ping\",\"id\":\"p{n}\"}}\n")).collect();
    let mut hosts = [Host::start(&["--audit", &file]), Host::start(&["--audit", &file])];
    for host in &mut hosts {
        host.send_raw(flood.as_bytes());
    }
    for mut host in hosts {
        host.wait(|message| message["req_id"] == format!("p{}", PINGS - 1));
        host.finish();
    }
    assert_eq!(lines(&file).len(), 2 * (PINGS + 1));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_the_start() {
    for file in ["/no/such/audit.log", "/"] {
        let output = binary().args(["serve", "--audit", file]).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        assert!(stderr.contains(&format!("audit: {file}: cannot be opened")), "{stderr}");
    }
}
