//! `a2e-proc config`: what a configuration file comes to, for whoever writes one. The keys themselves are in `config_file`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::Value;

use super::config_file::{self, Given};
use super::keys::{Defaults, KEYS, Key};
use super::settings::Settings;
use super::{Complaint, Outcome};

/// What to do about a configuration file.
#[derive(Subcommand)]
pub enum Action {
    /// Say of each key in a file what it means, what holds and whether it does anything; then which keys are not in it
    ///
    /// Exit codes: 0 if serve would take the file; 2 if not, and why.
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print a file that has every key, at its default
    Example,
}

/// Does it.
pub fn config(action: Action) -> Outcome {
    let text = match action {
        Action::Check { file } => check(&file)?,
        Action::Example => example(),
    };
    let failure = |e| Complaint::failure(format!("standard output cannot be written to: {e}"));
    std::io::stdout().write_all(text.as_bytes()).map_err(failure)?;
    Ok(0)
}

/// A file with every key, in the order of the table.
fn example() -> String {
    let defaults = Defaults::default();
    let line = |key: &Key| format!("  {:?}: {}", key.names[0], (key.default)(&defaults));
    let lines: Vec<String> = KEYS.iter().map(line).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

fn check(file: &Path) -> Result<String, Complaint> {
    let mut settings = Settings::default();
    let given = config_file::fill(&mut settings, file)?;
    settings.clone().check()?;
    let defaults = Defaults::default();
    let mut text = format!("{}: serve takes this file. It has\n", file.display());
    for Given { name, value, key } in &given {
        let (remark, meaning) = match key {
            None => ("no effect".to_owned(), "a key of the published SDK's that this host has no use for"),
            Some(key) => (remark(key, value, &settings, &defaults), key.meaning),
        };
        text.push_str(&format!("  {name} = {value} ({remark}): {meaning}\n"));
    }
    text.push_str("and not these keys, whose defaults hold:\n");
    let is_given = |key: &Key| given.iter().any(|given| given.key.is_some_and(|other| std::ptr::eq(other, key)));
    for key in KEYS.iter().filter(|key| !is_given(key)) {
        text.push_str(&format!("  {} = {}: {}\n", key.names[0], (key.default)(&defaults), key.meaning));
    }
    Ok(text)
}

/// Whether a value does anything.
fn remark(key: &Key, value: &Value, settings: &Settings, defaults: &Defaults) -> String {
    let default = (key.default)(defaults);
    match key.idle(settings) {
        Some(why) => why.to_owned(),
        None if same(value, &default) => "same as the default".to_owned(),
        None => format!("the default is {default}"),
    }
}

/// Whether two values are the same; 2 and 2.0 are.
fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|number| Some(number) == other.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_every_key_at_its_default() {
        let file = std::env::temp_dir().join(format!("a2e-proc-example-{}.json", std::process::id()));
        std::fs::write(&file, example()).unwrap();
        let settings = Settings { config: Some(file.clone()), ..Settings::default() };
        let (given, nothing) = (settings.resolve().ok().unwrap(), Settings::default().resolve().ok().unwrap());
        assert_eq!(format!("{:?}", given.config), format!("{:?}", nothing.config));
        assert_eq!(format!("{:?}", given.options), format!("{:?}", nothing.options));
        let told = check(&file).ok().unwrap();
        // Two need an audit file, three an address, and two one of HTTP.
        assert_eq!(told.matches("(same as the default)").count(), KEYS.len() - 7, "{told}");
        assert_eq!(told.matches("(no effect ").count(), 7, "{told}");
        std::fs::remove_file(file).unwrap();
    }
}
