//! The life of one process as a pure machine: a state and an input give the next state and what is to be done about it.
//!
//! `process` feeds it, under the process's lock, from four sides (requests, the timer, the waiter, the end of the
//! session), in whatever order the races bring them. So every state has an answer to every input.
//!
//! ```text
//! Running ──End──▶ Ending ──LeaderExited──▶ Leaderless ──GroupGone──▶ Over ──Reap──▶ Reaped
//!    └────────────────────LeaderExited──────────────────────────────▶──┘
//! ```

use crate::model::{Cause, Exit, Outcome, Signal, Status};

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The leader lives and nobody has asked for its end.
    Running {
        /// It has been sent SIGINT (R23).
        interrupted: bool,
    },
    /// The leader lives; its group has been asked to end.
    Ending {
        /// By whom, first.
        cause: Cause,
        /// SIGKILL has been sent.
        forced: bool,
    },
    /// The leader has left after it was asked to; others of its group may live.
    Leaderless {
        /// What it will have come to.
        outcome: Outcome,
        /// SIGKILL has been sent.
        forced: bool,
    },
    /// It has ended: the outcome is final. Its last output is being delivered, its pid is still held.
    Over {
        /// The final outcome.
        outcome: Outcome,
    },
    /// Nothing of it is left in the system.
    Reaped {
        /// The final outcome.
        outcome: Outcome,
    },
}

/// What can happen to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request for SIGINT.
    Interrupt,
    /// A request to end, gently or by force.
    End {
        /// Who asks.
        cause: Cause,
        /// With SIGKILL at once.
        force: bool,
    },
    /// The grace period after SIGTERM is over.
    GraceOver,
    /// The leader was seen to have left, and is not reaped.
    LeaderExited(Exit),
    /// Nobody of the group lives, as far as can be seen, or SIGKILL is on its way to whoever does.
    GroupGone,
    /// The output is delivered, or as much of it as will be before the leader is reaped.
    Reap,
}

/// What is to be done, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Signal the group.
    Signal(Signal),
    /// Feed [`Input::GraceOver`] after the grace period.
    StartGrace,
    /// The outcome is final: free the quota, remember the process.
    Settle,
    /// Reap the leader.
    Reap,
    /// Answer those who wait for the end; the terminal event is due. Comes once, and last.
    Finish,
}

impl State {
    /// A process that has just been spawned.
    pub const NEW: Self = Self::Running { interrupted: false };

    /// What the agent is told (R24). An end is not reported before the whole group has come to it.
    pub fn status(self) -> Status {
        match self {
            Self::Running { .. } | Self::Ending { .. } | Self::Leaderless { .. } => Status::Running,
            Self::Over { outcome } | Self::Reaped { outcome } => outcome.status(),
        }
    }

    /// The final outcome, once there is one.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Over { outcome } | Self::Reaped { outcome } => Some(outcome),
            _ => None,
        }
    }

    /// Whether SIGKILL has been sent to a group that has not come to its end.
    pub fn forced(self) -> bool {
        matches!(self, Self::Ending { forced: true, .. } | Self::Leaderless { forced: true, .. })
    }

    /// Takes one input.
    pub fn step(self, input: Input) -> (Self, Vec<Effect>) {
        use Effect::{Finish, Reap, Settle, StartGrace};
        let stay = (self, Vec::new());
        match (self, input) {
            // The end of a process by itself. SIGINT counts as the cause only if that very signal ended it (R23).
            (Self::Running { interrupted }, Input::LeaderExited(exit)) => {
                let by_interrupt = interrupted && exit == Exit::Signal(SIGINT);
                let outcome = Outcome { exit, cause: by_interrupt.then_some(Cause::Kill) };
                (Self::Over { outcome }, vec![Settle])
            }
            (Self::Running { .. }, Input::Interrupt) => {
                (Self::Running { interrupted: true }, vec![Effect::Signal(Signal::Int)])
            }
            (Self::Running { .. }, Input::End { cause, force: false }) => {
                (Self::Ending { cause, forced: false }, vec![Effect::Signal(Signal::Term), StartGrace])
            }
            (Self::Running { .. }, Input::End { cause, force: true }) => {
                (Self::Ending { cause, forced: true }, vec![Effect::Signal(Signal::Kill)])
            }
            // Stale: grace and the group's end belong to a process that was asked to end.
            (Self::Running { .. }, Input::GraceOver | Input::GroupGone | Input::Reap) => stay,

            // Whoever asked first is the cause; a later, harder request only adds force.
            (Self::Ending { cause, forced: false }, Input::End { force: true, .. } | Input::GraceOver) => {
                (Self::Ending { cause, forced: true }, vec![Effect::Signal(Signal::Kill)])
            }
            (Self::Ending { cause, forced }, Input::LeaderExited(exit)) => {
                (Self::Leaderless { outcome: Outcome { exit, cause: Some(cause) }, forced }, Vec::new())
            }
            (Self::Ending { forced: false, .. }, Input::Interrupt) => (self, vec![Effect::Signal(Signal::Int)]),
            // SIGTERM has been sent and its grace is running, or SIGKILL has been sent: there is nothing to add.
            (Self::Ending { .. }, _) => stay,

            // The leader is unreaped, so its group can still be signalled.
            (Self::Leaderless { outcome, forced: false }, Input::End { force: true, .. } | Input::GraceOver) => {
                (Self::Leaderless { outcome, forced: true }, vec![Effect::Signal(Signal::Kill)])
            }
            (Self::Leaderless { forced: false, .. }, Input::Interrupt) => (self, vec![Effect::Signal(Signal::Int)]),
            (Self::Leaderless { outcome, .. }, Input::GroupGone) => (Self::Over { outcome }, vec![Settle]),
            (Self::Leaderless { .. }, _) => stay,

            // What the leader left behind in its group ends with it: once it is reaped nobody could safely signal them.
            (Self::Over { outcome }, Input::Reap) => {
                (Self::Reaped { outcome }, vec![Effect::Signal(Signal::Kill), Reap, Finish])
            }
            // It has ended; a request that comes now is answered so by the caller.
            (Self::Over { .. }, _) => stay,

            // The pid may belong to somebody else by now: nothing is done, whatever comes.
            (Self::Reaped { .. }, _) => stay,
        }
    }
}

/// The number of SIGINT, the same on every Unix.
const SIGINT: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Input = Input::End { cause: Cause::Kill, force: false };
    const KILL: Input = Input::End { cause: Cause::Kill, force: true };
    const TIMEOUT: Input = Input::End { cause: Cause::Timeout, force: false };
    const CLOSE: Input = Input::End { cause: Cause::SessionEnd, force: false };

    fn exited(code: i32) -> Input {
        Input::LeaderExited(Exit::Code(code))
    }

    fn signalled(signal: i32) -> Input {
        Input::LeaderExited(Exit::Signal(signal))
    }

    /// Runs the inputs and returns the final status and the effects, as words.
    fn run(inputs: &[Input]) -> (Status, String) {
        let mut state = State::NEW;
        let mut words = Vec::new();
        for &input in inputs {
            let (next, effects) = state.step(input);
            state = next;
            words.extend(effects.iter().map(|effect| match effect {
                Effect::Signal(signal) => format!("{signal:?}"),
                Effect::StartGrace => "grace".into(),
                Effect::Settle => "settle".into(),
                Effect::Reap => "reap".into(),
                Effect::Finish => format!("finish({})", state.outcome().unwrap().exit.code()),
            }));
        }
        (state.status(), words.join(" "))
    }

    #[test]
    fn each_way_to_end() {
        use Input::{GraceOver, GroupGone, Interrupt, Reap};
        let rows: [(&[Input], Status, &str); 17] = [
            (&[exited(0), Reap], Status::Completed, "settle Kill reap finish(0)"),
            (&[exited(3), Reap], Status::Failed, "settle Kill reap finish(3)"),
            (&[signalled(15), Reap], Status::Failed, "settle Kill reap finish(-15)"),
            (&[TERM, signalled(15), GroupGone, Reap], Status::Killed, "Term grace settle Kill reap finish(-15)"),
            (&[TERM, exited(0), GroupGone, Reap], Status::Killed, "Term grace settle Kill reap finish(0)"),
            (&[TERM, TERM, exited(0)], Status::Running, "Term grace"),
            (&[TERM, exited(0), GraceOver, GroupGone], Status::Killed, "Term grace Kill settle"),
            (&[TERM, KILL, GraceOver, signalled(9), GroupGone], Status::Killed, "Term grace Kill settle"),
            (&[KILL, TERM, KILL, signalled(9), GroupGone], Status::Killed, "Kill settle"),
            (&[TIMEOUT, TERM, signalled(15), GroupGone], Status::TimedOut, "Term grace settle"),
            (&[TERM, TIMEOUT, signalled(15), GroupGone], Status::Killed, "Term grace settle"),
            (&[CLOSE, KILL, signalled(9), GroupGone], Status::Killed, "Term grace Kill settle"),
            (&[Interrupt, signalled(2)], Status::Killed, "Int settle"),
            (&[Interrupt, exited(130)], Status::Failed, "Int settle"),
            (&[Interrupt, exited(0)], Status::Completed, "Int settle"),
            (&[signalled(2)], Status::Failed, "settle"),
            (&[exited(0), KILL, TIMEOUT, GraceOver, Interrupt], Status::Completed, "settle"),
        ];
        for (inputs, status, words) in rows {
            assert_eq!(run(inputs), (status, words.into()), "{inputs:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_long_sequence_ends_once(inputs in proptest::collection::vec(0..10_usize, 0..200)) {
            let all = [Input::Interrupt, TERM, KILL, TIMEOUT, CLOSE, Input::GraceOver, exited(0), signalled(9),
                Input::GroupGone, Input::Reap];
            let mut state = State::NEW;
            let mut effects = Vec::new();
            // Whatever came before, an exit, the group's end and reaping bring it to its end.
            for input in inputs.into_iter().map(|at| all[at]).chain([exited(1), Input::GroupGone, Input::Reap]) {
                let (next, more) = state.step(input);
                effects.extend(more);
                state = next;
            }
            let count = |wanted: Effect| effects.iter().filter(|effect| **effect == wanted).count();
            assert_eq!((count(Effect::Settle), count(Effect::Reap), count(Effect::Finish)), (1, 1, 1));
            assert_eq!(effects.last(), Some(&Effect::Finish));
        }
    }

    #[test]
    fn any_order_of_inputs_finishes_at_most_once_and_does_nothing_after() {
        let inputs = [
            Input::Interrupt,
            TERM,
            KILL,
            TIMEOUT,
            CLOSE,
            Input::GraceOver,
            exited(0),
            signalled(2),
            Input::GroupGone,
            Input::Reap,
        ];
        // Every sequence of six inputs, read as the digits of a number.
        for sequence in 0..10_u32.pow(6) {
            let (mut state, mut digits, mut finished) = (State::NEW, sequence, false);
            for _ in 0..6 {
                let (next, effects) = state.step(inputs[(digits % 10) as usize]);
                assert!(!finished || effects.is_empty(), "{sequence}: {effects:?} after the end");
                assert!(state.outcome().is_none() || next.outcome() == state.outcome(), "{sequence}: outcome changed");
                finished |= matches!(effects.last(), Some(Effect::Finish));
                (state, digits) = (next, digits / 10);
            }
        }
    }
}
