//! The life of one entry as a pure machine: where it stands, what is asked of it or heard from its process, and what is to be done.
//!
//! `running` feeds it under the desk's lock. Each start is a *run* with a number of its own, so that what is heard late of an old
//! process is not taken for news of the new one. However orders race, there is never more than one process: only an idle entry
//! launches one, and it is not idle again before that one has ended.
//!
//! ```text
//! Idle ──Start──▶ Starting ──Started──▶ Running ──Stop──▶ Stopping ──Ended──▶ Idle
//!   ◀──FailedToStart──┘                    └──────────Ended──────────────────▶
//! ```

use crate::model::{Exit, Outcome};

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Nothing of it runs.
    Idle(Idle),
    /// Its process is being started, without the desk's lock.
    Starting {
        /// Which run.
        run: u64,
        /// What comes once it has started.
        then: Then,
        /// It has ended before it was heard that it had started.
        ended: Option<Outcome>,
    },
    /// Its process runs.
    Running {
        /// Which run.
        run: u64,
    },
    /// Its process has been asked to end.
    Stopping {
        /// Which run.
        run: u64,
        /// What comes once it has ended.
        then: After,
    },
    /// It has been closed: whoever still holds it finds nothing to do.
    Closed,
}

/// Why nothing of an entry runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It has not been started, or was asked to stop.
    Stopped,
    /// It ended by itself.
    Exited(Exit),
    /// It could not be started.
    NotStarted(String),
}

/// What comes once a process has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It runs.
    Run,
    /// It is stopped at once.
    Stop,
    /// It is stopped, and the entry closed.
    Close,
}

/// What comes once a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The entry is stopped.
    Rest,
    /// The next one is started.
    Start,
    /// The entry is closed.
    Close,
}

/// What can happen to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It is to run.
    Start,
    /// It is not to run.
    Stop,
    /// It is to run anew.
    Restart,
    /// It is to go.
    Close,
    /// The process of that run has started.
    Started(u64),
    /// The process of that run could not be started.
    NotStarted(u64, String),
    /// The process of that run has ended.
    Ended(u64, Outcome),
}

/// What is to be done about it, without the desk's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a process, and say how that went.
    Launch(u64),
    /// Ask the process to end.
    Stop,
    /// It has ended and nobody had asked for that: it may be due to be started again.
    EndedByItself,
    /// Take the entry off the desk.
    Remove,
}

impl Run {
    /// Takes one input. `next` is the number of the run that this may begin.
    pub fn step(self, input: Input, next: u64) -> (Self, Option<Effect>) {
        use {After::Rest, Input::*};
        let launch = (Self::Starting { run: next, then: Then::Run, ended: None }, Some(Effect::Launch(next)));
        match (self, input) {
            // A closed entry takes no orders, and its process has been heard out before.
            (Self::Closed, _) => (Self::Closed, None),

            (Self::Idle(_), Start | Restart) => launch,
            (Self::Idle(_), Close) => (Self::Closed, Some(Effect::Remove)),
            // It does not run, as asked; what is heard of a run is of an old one.
            (Self::Idle(idle), Stop | Started(_) | NotStarted(..) | Ended(..)) => (Self::Idle(idle), None),

            // What is being started is as new as a restart could make it. The last order counts, but nothing brings back what is
            // being closed.
            (Self::Starting { run, ended, then }, Start | Restart) => {
                let then = if then == Then::Close { then } else { Then::Run };
                (Self::Starting { run, then, ended }, None)
            }
            (Self::Starting { run, ended, then }, Stop) => {
                let then = if then == Then::Close { then } else { Then::Stop };
                (Self::Starting { run, then, ended }, None)
            }
            (Self::Starting { run, ended, .. }, Close) => (Self::Starting { run, then: Then::Close, ended }, None),
            (Self::Starting { run, then, .. }, Ended(of, outcome)) if of == run => {
                (Self::Starting { run, then, ended: Some(outcome) }, None)
            }
            (Self::Starting { run, then, ended: None }, Started(of)) if of == run => match then {
                Then::Run => (Self::Running { run }, None),
                Then::Stop => (Self::Stopping { run, then: Rest }, Some(Effect::Stop)),
                Then::Close => (Self::Stopping { run, then: After::Close }, Some(Effect::Stop)),
            },
            (Self::Starting { run, then, ended: Some(outcome) }, Started(of)) if of == run => match then {
                Then::Run => ended_by_itself(outcome),
                Then::Stop => (Self::Idle(Idle::Stopped), None),
                Then::Close => (Self::Closed, Some(Effect::Remove)),
            },
            (Self::Starting { run, then, .. }, NotStarted(of, why)) if of == run => match then {
                Then::Close => (Self::Closed, Some(Effect::Remove)),
                Then::Run | Then::Stop => (Self::Idle(Idle::NotStarted(why)), None),
            },
            (starting @ Self::Starting { .. }, Started(_) | NotStarted(..) | Ended(..)) => (starting, None),

            (Self::Running { run }, Stop) => (Self::Stopping { run, then: Rest }, Some(Effect::Stop)),
            (Self::Running { run }, Restart) => (Self::Stopping { run, then: After::Start }, Some(Effect::Stop)),
            (Self::Running { run }, Close) => (Self::Stopping { run, then: After::Close }, Some(Effect::Stop)),
            (Self::Running { run }, Ended(of, outcome)) if of == run => ended_by_itself(outcome),
            // It runs, as asked; or what is heard is of an old run.
            (Self::Running { run }, Start | Started(_) | NotStarted(..) | Ended(..)) => (Self::Running { run }, None),

            // The last order counts, but nothing brings back what is being closed.
            (Self::Stopping { run, then: After::Close }, Start | Restart | Stop | Close) => {
                (Self::Stopping { run, then: After::Close }, None)
            }
            (Self::Stopping { run, .. }, Start | Restart) => (Self::Stopping { run, then: After::Start }, None),
            (Self::Stopping { run, .. }, Stop) => (Self::Stopping { run, then: Rest }, None),
            (Self::Stopping { run, .. }, Close) => (Self::Stopping { run, then: After::Close }, None),
            (Self::Stopping { run, then }, Ended(of, _)) if of == run => match then {
                Rest => (Self::Idle(Idle::Stopped), None),
                After::Start => launch,
                After::Close => (Self::Closed, Some(Effect::Remove)),
            },
            (Self::Stopping { run, then }, Started(_) | NotStarted(..) | Ended(..)) => {
                (Self::Stopping { run, then }, None)
            }
        }
    }
}

fn ended_by_itself(outcome: Outcome) -> (Run, Option<Effect>) {
    (Run::Idle(Idle::Exited(outcome.exit)), Some(Effect::EndedByItself))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Outcome = Outcome { exit: Exit::Code(0), cause: None };

    /// Runs the inputs, each `Ended` and `Started` of the run that is under way, and returns where it stands and the effects.
    fn run(inputs: &[Input]) -> (Run, String) {
        let (mut state, mut words, mut number) = (Run::Idle(Idle::Stopped), Vec::new(), 0);
        for input in inputs {
            let (next, effect) = state.step(input.clone(), number + 1);
            state = next;
            if let Some(effect) = effect {
                words.push(match effect {
                    Effect::Launch(run) => {
                        number = run;
                        format!("launch{run}")
                    }
                    other => format!("{other:?}").to_lowercase(),
                });
            }
        }
        (state, words.join(" "))
    }

    #[test]
    fn each_way() {
        use Input::*;
        let stopped = Run::Idle(Idle::Stopped);
        let exited = Run::Idle(Idle::Exited(Exit::Code(0)));
        let rows: [(&[Input], Run, &str); 18] = [
            (&[Start, Started(1)], Run::Running { run: 1 }, "launch1"),
            (&[Start, Start, Restart, Started(1)], Run::Running { run: 1 }, "launch1"),
            (&[Start, Started(1), Stop, Ended(1, GONE)], stopped.clone(), "launch1 stop"),
            (&[Start, Started(1), Ended(1, GONE)], exited.clone(), "launch1 endedbyitself"),
            (&[Start, Ended(1, GONE), Started(1)], exited.clone(), "launch1 endedbyitself"),
            (&[Start, Stop, Started(1), Ended(1, GONE)], stopped.clone(), "launch1 stop"),
            (&[Start, Stop, Ended(1, GONE), Started(1)], stopped.clone(), "launch1"),
            (&[Start, Stop, Start, Started(1)], Run::Running { run: 1 }, "launch1"),
            (&[Start, NotStarted(1, "no".into())], Run::Idle(Idle::NotStarted("no".into())), "launch1"),
            (&[Start, Close, NotStarted(1, "no".into())], Run::Closed, "launch1 remove"),
            (&[Start, Close, Start, Restart, Started(1), Ended(1, GONE)], Run::Closed, "launch1 stop remove"),
            (&[Start, Close, Stop, Started(1), Ended(1, GONE)], Run::Closed, "launch1 stop remove"),
            (
                &[Start, Started(1), Restart, Restart, Ended(1, GONE), Started(2)],
                Run::Running { run: 2 },
                "launch1 stop launch2",
            ),
            (&[Start, Started(1), Restart, Stop, Ended(1, GONE)], stopped.clone(), "launch1 stop"),
            (
                &[Start, Started(1), Stop, Start, Ended(1, GONE), Started(2)],
                Run::Running { run: 2 },
                "launch1 stop launch2",
            ),
            (&[Start, Started(1), Close, Start, Restart, Ended(1, GONE)], Run::Closed, "launch1 stop remove"),
            (&[Stop, Close, Start], Run::Closed, "remove"),
            (&[Start, Started(1), Ended(7, GONE), Started(7)], Run::Running { run: 1 }, "launch1"),
        ];
        for (inputs, state, words) in rows {
            assert_eq!(run(inputs), (state, words.to_owned()), "{inputs:?}");
        }
    }

    proptest::proptest! {
        /// Whatever is asked in whatever order, and however late the news come: never two processes, and none that is forgotten.
        #[test]
        fn there_is_never_a_second_process(steps in proptest::collection::vec(0..7_u8, 0..80)) {
            let (mut state, mut number) = (Run::Idle(Idle::Stopped), 0);
            // The process that runs in the system, and whether its start has been told.
            let mut alive: Option<(u64, bool)> = None;
            let mut untold: Option<u64> = None;
            for step in steps {
                let input = match (step, alive) {
                    (0, _) => Input::Start,
                    (1, _) => Input::Stop,
                    (2, _) => Input::Restart,
                    (3, _) => Input::Close,
                    // Its start is told once, before or after its end.
                    (4, _) => match untold.take() {
                        Some(run) => {
                            alive = alive.map(|(of, _)| (of, true));
                            Input::Started(run)
                        }
                        None => continue,
                    },
                    (_, Some((run, _))) => {
                        alive = None;
                        Input::Ended(run, GONE)
                    }
                    _ => continue,
                };
                let (next, effect) = state.step(input, number + 1);
                state = next;
                if let Some(Effect::Launch(run)) = effect {
                    proptest::prop_assert!(alive.is_none() && untold.is_none(), "a second process");
                    number = run;
                    (alive, untold) = (Some((run, false)), Some(run));
                }
                let is_quiet = matches!(state, Run::Idle(_) | Run::Closed);
                proptest::prop_assert_eq!(is_quiet, alive.is_none() && untold.is_none(), "{:?}", state);
            }
        }
    }
}
