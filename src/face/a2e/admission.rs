//! Who may use a connection's session: the handshake, its token, and the session's name (R6, R7).
//!
//! Owned by the connection's peer, on its request thread.

use crate::ids::fresh_id;
use crate::model::Secret;

/// The gate in front of `proc/*`.
pub struct Admission {
    token: Option<Secret>,
    state: State,
}

enum State {
    /// Nothing has been said yet.
    New,
    /// A `proc/*` has opened the session without a handshake; a spawn may have named it.
    Implicit(Option<String>),
    /// A handshake has opened it.
    Open(String),
}

/// Why a request may not pass, in words.
pub type Denied = String;

impl Admission {
    /// A gate that asks for this token, if any.
    pub fn new(token: Option<Secret>) -> Self {
        Self { token, state: State::New }
    }

    /// Opens the session by a handshake and returns its name, or the reason why not.
    pub fn handshake(&mut self, token: &Secret) -> Result<String, &'static str> {
        if self.token.as_ref().is_some_and(|expected| !same(expected.reveal(), token.reveal())) {
            return Err("auth_failed");
        }
        let id = match &self.state {
            State::Open(_) => return Err("server_error"),
            State::Implicit(Some(named)) => named.clone(),
            State::New | State::Implicit(None) => fresh_id(),
        };
        self.state = State::Open(id.clone());
        Ok(id)
    }

    /// The session's name; empty before it has one.
    pub fn session_id(&self) -> &str {
        match &self.state {
            State::New | State::Implicit(None) => "",
            State::Implicit(Some(id)) | State::Open(id) => id,
        }
    }

    /// Whether a `proc/*` message may pass, be it well-formed or not.
    pub fn check(&self) -> Result<(), Denied> {
        match (&self.state, &self.token) {
            (State::New, Some(_)) => Err("this host asks for a handshake/req with a valid auth_token first".into()),
            _ => Ok(()),
        }
    }

    /// Lets a `proc/*` message pass if there is a session, or if one may be opened by it.
    pub fn admit(&mut self) -> Result<(), Denied> {
        self.check()?;
        if matches!(self.state, State::New) {
            self.state = State::Implicit(None);
        }
        Ok(())
    }

    /// Lets a spawn pass if it names this session, or none. In an implicit session the first name is the session's.
    pub fn admit_spawn(&mut self, session_id: &str) -> Result<(), Denied> {
        self.admit()?;
        match &mut self.state {
            _ if session_id.is_empty() => Ok(()),
            State::Implicit(named @ None) => {
                *named = Some(session_id.into());
                Ok(())
            }
            State::Implicit(Some(id)) | State::Open(id) if *id == session_id => Ok(()),
            _ => Err("session_id is not the one of this connection's session".into()),
        }
    }
}

/// Compares in a time that depends on the lengths alone.
fn same(expected: &str, given: &str) -> bool {
    let differs = expected.bytes().zip(given.bytes()).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
    expected.len() == given.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.into())
    }

    #[test]
    fn without_a_token_a_handshake_is_optional_and_happens_once() {
        let mut gate = Admission::new(None);
        assert!(gate.admit().is_ok());
        assert!(gate.admit_spawn("").is_ok() && gate.admit_spawn("s1").is_ok() && gate.admit_spawn("s1").is_ok());
        assert!(gate.admit_spawn("s2").is_err());
        assert_eq!(gate.handshake(&secret("anything")).as_deref(), Ok("s1"), "the session keeps its name");
        assert_eq!(gate.handshake(&secret("")), Err("server_error"));
        assert!(gate.admit_spawn("s1").is_ok() && gate.admit_spawn("").is_ok() && gate.admit_spawn("s2").is_err());
    }

    #[test]
    fn with_a_token_nothing_passes_before_it() {
        let mut gate = Admission::new(Some(secret("secret")));
        for wrong in ["", "secre", "secret2", "Secret"] {
            assert!(gate.admit().is_err() && gate.admit_spawn("s1").is_err());
            assert_eq!(gate.handshake(&secret(wrong)), Err("auth_failed"), "{wrong}");
        }
        let id = gate.handshake(&secret("secret")).unwrap();
        assert_eq!(id.len(), 32);
        assert!(gate.admit().is_ok() && gate.admit_spawn(&id).is_ok() && gate.admit_spawn("other").is_err());
    }
}
