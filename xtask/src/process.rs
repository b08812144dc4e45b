//! Other programs: shown before they run, with their output going straight to the terminal.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace;

/// The compiler that lints what it compiles. `cargo clippy` starts it by the same variables.
const CLIPPY: &str = "clippy-driver";
const DENY_WARNINGS: [&str; 2] = ["-D", "warnings"];
/// How it is given several arguments in one variable.
const BETWEEN: &str = "__CLIPPY_HACKERY__";

/// The cargo that runs xtask, at the root of the workspace, with `words` as a person types them. It is not told what that one says of xtask itself: build scripts
/// that look at such variables would run anew, and half of the workspace after them, whenever xtask and a plain cargo take turns.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split(' ')).current_dir(workspace::root());
    let of_xtask = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_xtask)) {
        command.env_remove(name);
    }
    command
}

/// The same with Clippy as the compiler of the workspace: what it builds has passed all lints, and stays so for every command that is
/// given here.
pub(crate) fn linted_cargo(words: &str) -> Result<Command, String> {
    need_subcommand("clippy", "rustup component add clippy")?;
    let mut command = cargo(words);
    let beside = Path::new(command.get_program()).with_file_name(CLIPPY);
    let clippy = if beside.is_file() { beside } else { CLIPPY.into() };
    command
        .env("RUSTC_WORKSPACE_WRAPPER", clippy)
        .env("CLIPPY_ARGS", DENY_WARNINGS.map(|word| format!("{word}{BETWEEN}")).concat());
    Ok(command)
}

/// Shows and runs `command`; anything but success is an error that quotes it.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
}

/// What `command` prints, which must succeed. Not shown: it is asked for xtask's own sake.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let output = command
        .output()
        .map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What git prints, at the root of the workspace.
pub(crate) fn git(args: &[&str]) -> Result<String, String> {
    output(Command::new("git").args(args).current_dir(workspace::root()))
}

/// Says in one sentence what to install if `cargo SUBCOMMAND` is missing; cargo's own message speaks of typing errors.
pub(crate) fn need_subcommand(subcommand: &str, how_to_install: &str) -> Result<(), String> {
    let mut probe = cargo(&format!("{subcommand} --version"));
    let answer = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if answer.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(format!("`cargo {subcommand}` is not installed; install it with `{how_to_install}`"))
}

/// As a person would type it: variables first (but for long ones), programs without their folder.
fn shown(command: &Command) -> String {
    let variable = |(name, value): (&OsStr, Option<&OsStr>)| {
        let value = value?.to_string_lossy().into_owned();
        if name == "PATH" || name == "CLIPPY_ARGS" {
            return None;
        }
        let value = value
            .rsplit('/')
            .next()
            .filter(|_| name == "RUSTC_WORKSPACE_WRAPPER")
            .unwrap_or(&value);
        Some(format!("{}={}", name.to_string_lossy(), quoted(value.to_owned())))
    };
    let mut words: Vec<String> = command.get_envs().filter_map(variable).collect();
    let program = Path::new(command.get_program());
    words.push(
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    );
    words.extend(command.get_args().map(|arg| quoted(arg.to_string_lossy().into_owned())));
    words.join(" ")
}

fn quoted(word: String) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_quoted_with_its_status() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error, "`sh -c 'exit 3'` ended with exit status: 3");
    }

    #[test]
    fn a_command_that_does_not_exist_is_named() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.starts_with("`no-such-program-here` cannot be started: "), "{error}");
    }

    #[test]
    fn variables_are_shown_before_the_program() {
        let mut command = Command::new("/usr/bin/cargo");
        command.arg("doc").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc");
    }

    #[test]
    fn a_missing_subcommand_says_how_to_install_it() {
        let error = need_subcommand("no-such-subcommand", "rustup component add x").unwrap_err();
        let expected =
            "`cargo no-such-subcommand` is not installed; install it with `rustup component add x`";
        assert_eq!(error, expected);
    }
}
