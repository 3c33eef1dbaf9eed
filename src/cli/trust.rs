//! `a2e-proc trust`: a person says which commands of a project may be run for MCP clients. No tool can; what runs as the same user
//! and can write files is another matter, which the README tells.

use std::io::{IsTerminal, Write};

use a2e_proc::desk::is_managed;
use a2e_proc::desk::paths::Paths;
use a2e_proc::desk::project::{Command, Project};
use a2e_proc::desk::trust::{Trust, show, visible};
use clap::Subcommand;

use super::{Complaint, Outcome, desk};

#[derive(Subcommand)]
pub enum Action {
    /// List the project's commands, and which are trusted
    List {
        #[command(flatten)]
        project: desk::Project,
    },
    /// Show all that a command depends on
    Show {
        /// The command's name in the project's file
        name: String,
        #[command(flatten)]
        project: desk::Project,
    },
    /// Let MCP clients run a command as it stands in the project's file now
    ///
    /// Shows the command, its directory and its environment, and asks. If any of that changes, it is not trusted any more.
    Grant {
        /// The command's name in the project's file
        name: String,
        /// Do not ask: for a person's own scripts
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        project: desk::Project,
    },
    /// Let MCP clients run a command no more; one that runs goes on
    Revoke {
        /// The command's name in the project's file
        name: String,
        #[command(flatten)]
        project: desk::Project,
    },
}

pub const HELP: &str = "\
Exit codes: 0 done; 1 it was not confirmed, or a file cannot be written; 2 there is no such command, or nobody can be asked.";

/// Does what the command line asks for.
pub fn trust(action: &Action) -> Outcome {
    match action {
        Action::List { project } => {
            let (paths, read) = read(project)?;
            let trust = load(&paths);
            for command in &read.commands {
                let word = if trust.is_trusted(&command.variant()) { "trusted" } else { "not trusted" };
                print(format_args!("{word:<12} {}  {}", visible(&command.name), visible(&command.command)))?;
            }
            for notice in &read.notices {
                say(format_args!("note: {notice}"));
            }
            if read.commands.is_empty() {
                say(format_args!("{} has no commands; they stand in its solo.yml", paths.root.display()));
            }
            Ok(0)
        }
        Action::Show { name, project } => {
            let (paths, command) = find(project, name)?;
            print(format_args!("{}", show(&command, &paths.root).trim_end()))?;
            let word = if load(&paths).is_trusted(&command.variant()) { "yes" } else { "no" };
            print(format_args!("{:<21} {word}", "trusted"))?;
            Ok(0)
        }
        Action::Grant { name, yes, project } => grant(name, *yes, project),
        Action::Revoke { name, project } => {
            let (paths, command) = find(project, name)?;
            let (was_trusted, notices) = Trust::revoke(&paths, &command.variant()).map_err(Complaint::failure)?;
            tell(&notices);
            let words = if was_trusted { "is not trusted any more" } else { "was not trusted" };
            say(format_args!("{} {words}", visible(name)));
            Ok(0)
        }
    }
}

fn grant(name: &str, yes: bool, project: &desk::Project) -> Outcome {
    // What an agent types into a terminal of the desk is no person's word.
    if is_managed(std::process::id()) {
        let words = "this runs in a process of a desk, where an agent may be typing; trust is granted at a terminal of your own";
        return Err(Complaint::usage(words));
    }
    let (paths, command) = find(project, name)?;
    if !yes {
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(Complaint::usage(
                "nobody can be asked here: run this at a terminal, or pass --yes if you know the command",
            ));
        }
        let mut stderr = anstream::stderr();
        let _ = write!(stderr, "{}Let MCP clients run this? [y/N] ", show(&command, &paths.root));
        let _ = stderr.flush();
        let mut answer = String::new();
        let asked = std::io::stdin().read_line(&mut answer);
        asked.map_err(|e| Complaint::failure(format!("could not read the answer: {e}")))?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Err(Complaint::failure(format!("{} is not trusted: it was not confirmed", visible(name))));
        }
    }
    // Exactly what was shown, whatever the file says by now.
    paths.prepare().map_err(|e| Complaint::failure(format!("could not make {}: {e}", paths.state.display())))?;
    tell(&Trust::grant(&paths, &command.name, command.variant()).map_err(Complaint::failure)?);
    say(format_args!("{} is trusted", visible(name)));
    Ok(0)
}

fn read(project: &desk::Project) -> Result<(Paths, Project), Complaint> {
    let paths = project.paths()?;
    let project = Project::read(&paths.root).map_err(Complaint::usage)?;
    Ok((paths, project))
}

fn find(project: &desk::Project, name: &str) -> Result<(Paths, Command), Complaint> {
    let (paths, project) = read(project)?;
    if let Some(command) = project.commands.iter().find(|command| command.name == name) {
        return Ok((paths, command.clone()));
    }
    let names: Vec<String> = project.commands.iter().map(|command| visible(&command.name)).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let notices: String = project.notices.iter().map(|notice| format!("\na2e-proc: note: {notice}")).collect();
    Err(Complaint::usage(format!("the project has no command {}; it has: {names}{notices}", visible(name))))
}

fn load(paths: &Paths) -> Trust {
    let (trust, notices) = Trust::load(paths);
    tell(&notices);
    trust
}

fn tell(notices: &[String]) {
    for notice in notices {
        say(format_args!("note: {notice}"));
    }
}

fn say(words: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "a2e-proc: {words}");
}

fn print(words: std::fmt::Arguments<'_>) -> Result<(), Complaint> {
    let failed = |e| Complaint::failure(format!("standard output cannot be written to: {e}"));
    writeln!(anstream::stdout(), "{words}").map_err(failed)
}
