//! Whether this runner is right: the kit's self-tests, which have canned lines in the place of a host
//! (`conformance/README.md`, Write a runner).

use serde_json::Value;

use super::case;
use super::judge::{Bench, Verdict};
use super::kit::{Dialect, Kit, Profile};

/// How many there are of each group, and what is wrong.
#[derive(Debug, Default)]
pub struct Outcome {
    pub pass: usize,
    pub fail: usize,
    pub invalid: usize,
    pub wrong: Vec<String>,
}

/// Plays all self-tests.
///
/// # Errors
/// When the kit's schemas cannot be read.
pub fn run(kit: &Kit) -> Result<Outcome, String> {
    let (spec, sdk) = (kit.schemas(Dialect::Spec)?, kit.schemas(Dialect::Sdk)?);
    let mut outcome = Outcome::default();
    for (name, text) in kit.files("selftest", ".jsonl") {
        let case = case::parse(name, text);
        let judged = match (name.split('/').next(), case) {
            (Some("invalid"), case) => {
                outcome.invalid += 1;
                if case.is_ok() { Err("it was taken".to_owned()) } else { Ok(()) }
            }
            (_, Err(words)) => Err(words),
            (group, Ok(case)) => {
                let expected = match group {
                    Some("fail") => case.header.get("rule").and_then(Value::as_str),
                    _ => None,
                };
                *(if group == Some("fail") { &mut outcome.fail } else { &mut outcome.pass }) += 1;
                let profile = case.header.get("profile").and_then(Value::as_object);
                profile.ok_or_else(|| "its header has no profile".to_owned()).and_then(Profile::read).and_then(
                    |profile| {
                        let schemas = if profile.dialect == Dialect::Sdk { &sdk } else { &spec };
                        let bench = Bench {
                            command: String::new(),
                            connect: None,
                            profile: &profile,
                            schemas,
                            time_scale: 1.0,
                        };
                        let judgement = bench.judge_canned(&case);
                        let rule = judgement.failure.as_ref().map(|failure| failure.rule.as_str());
                        let right = judgement.verdict != Verdict::HarnessError && rule == expected;
                        let came = || format!("{:?}, {:?} {}", judgement.verdict, judgement.failure, judgement.words);
                        if right { Ok(()) } else { Err(format!("expected {expected:?}, came {}", came())) }
                    },
                )
            }
        };
        if let Err(words) = judged {
            outcome.wrong.push(format!("{name}: {words}"));
        }
    }
    Ok(outcome)
}
