//! Bad input, help, and a stdout that does not take what it is given.
#![cfg(feature = "file")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::json;

use crate::support::{self, TestDirectory, assert_has, said};

#[test]
fn bad_input_is_refused_with_its_field_and_its_limit_and_nothing_is_run() {
    let dir = TestDirectory::new();
    let long = "k".repeat(513);
    let huge = "9".repeat(40) + "s";
    for (options, told) in [
        ("--key ''", "key must not be empty"),
        (&*format!("--key {long}"), "key has 513 bytes; the limit is 512"),
        ("--key a\u{7}b", "control character at byte 1"),
        ("--key k --ttl 0s", "ttl is 0 ms; this store's least is 100 ms"),
        ("--key k --ttl 99ms", "ttl is 99 ms"),
        ("--key k --ttl -5s", "--ttl <DURATION>: a duration cannot be negative"),
        ("--key k --ttl 25h", "86400000 ms (a day)"),
        (&format!("--key k --ttl {huge}"), "--ttl <DURATION>: the duration is too long"),
        ("--key k --ttl 5", "a number needs a unit"),
        ("--key k --wait x", "--wait <DURATION>: not a duration"),
        ("--key k --task ''", "--task <TASK>: task must not be empty"),
        ("--key k --owner 'a\nb'", "--owner <OWNER>: owner has a control character"),
        ("--key k --priority 40000", "40000"),
        ("--key k --namespace 'Team A'", "namespace has 'T'"),
        ("--key k --store redis://me:secret@h", "unknown scheme \"redis\""),
        ("--key k --store file:x?sync=off", "option \"sync\""),
        ("--key k --store /tmp/x", "no scheme"),
        ("--key k -o env", "-o env is for"),
        ("--key k -o yaml", "yaml"),
        ("", "--key <KEY>"),
    ] {
        let said = dir.fails(&format!("run {options} -- touch ran"), 2, &[told]);
        assert_eq!(said.out, "", "{said:?}");
        assert!(said.err.starts_with("fencehold: "), "{said:?}");
        assert!(!said.err.contains("secret") && !said.err.contains('\u{7}'), "{said:?}");
    }
    assert!(!dir.path("ran").exists());
    assert!(!dir.path("leases").exists(), "what cannot succeed makes no store either");
}

#[test]
fn a_command_must_be_given_and_must_stand_apart() {
    let dir = TestDirectory::new();
    for words in ["run --key k", "run --key k --", "run --key k touch x"] {
        dir.fencehold(words).ended(2);
    }
    for words in ["", "nonsense", "lease", "lease nonsense", "--nonsense"] {
        let said = dir.fencehold(words).ended(2);
        assert_eq!(said.out, "", "{said:?}");
        assert!(!said.err.contains("panicked"), "{said:?}");
    }
}

#[test]
fn text_that_is_no_utf8_is_refused_where_it_matters_and_passed_on_where_it_does_not() {
    let dir = TestDirectory::new();
    let odd = OsStr::from_bytes(b"a\xffb");
    for words in [
        vec![OsStr::new("run"), OsStr::new("--key"), odd, OsStr::new("--"), OsStr::new("true")],
        vec![OsStr::new("lease"), OsStr::new("get"), odd],
        vec![OsStr::new("--store"), odd, OsStr::new("lease"), OsStr::new("ls")],
        vec![odd],
    ] {
        let said = dir.fencehold(&words).ended(2);
        assert!(said.err.starts_with("fencehold: ") && !said.err.contains("panicked"), "{said:?}");
    }
    for variable in ["FENCEHOLD_STORE", "FENCEHOLD_NAMESPACE", "FENCEHOLD_HOLD_ID", "FENCEHOLD_TOKEN"] {
        let said = said(dir.command("lease renew k --store memory:").env(variable, odd));
        assert_eq!(said.code, 2, "{variable}: {said:?}");
    }
    let words = "run --key k -- sh -c 'printf %s \"$1\" | od -An -tx1' sh";
    let said = said(dir.command(words).arg(odd));
    assert_eq!((said.code, said.out.trim()), (0, "61 ff 62"), "{said:?}");
}

#[test]
fn without_a_home_the_store_must_be_named() {
    let dir = TestDirectory::new();
    said(dir.command("lease ls").env_remove("FENCEHOLD_STORE").env_remove("HOME"))
        .ended(2)
        .says(&["HOME", "--store file:DIR"]);
}

#[test]
fn by_default_leases_live_in_the_users_state_directory() {
    let dir = TestDirectory::new();
    let mut command = dir.command("run --key k -- true");
    said(command.env_remove("FENCEHOLD_STORE")).ended(0);
    assert!(dir.path(".local/state/fencehold").is_dir());
    let elsewhere = dir.path("elsewhere");
    said(command.env("XDG_STATE_HOME", &elsewhere)).ended(0);
    assert!(elsewhere.join("fencehold").is_dir());
}

#[test]
fn a_directory_that_cannot_be_used_is_named_and_left_alone() {
    let dir = TestDirectory::new();
    std::fs::write(dir.path("text"), "mine").unwrap();
    let store = format!("file:{}", dir.path("text").display());
    let said = dir
        .fencehold(&format!("--store {store} run --key k -- touch ran"))
        .says(&["text"]);
    assert!([69, 74].contains(&said.code), "{said:?}");
    assert_eq!(std::fs::read_to_string(dir.path("text")).unwrap(), "mine");
    assert!(!dir.path("ran").exists());
    let doctor = dir.fencehold(&["--store", &store, "doctor"]).prints(&["FAILED"]);
    assert_ne!(doctor.code, 0, "{doctor:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold("run --key k -- true").code, 0);
    let ended = |words: &str, stdout: Stdio| {
        let child = dir.command(words).stdout(stdout).stderr(Stdio::piped()).spawn();
        child.unwrap().wait_with_output().unwrap()
    };
    for words in ["lease ls --include-free", "event ls -o jsonl", "completions bash", "man", "--help"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ended(words, writer.into());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"" as &[u8]), "{words:?}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = ended("lease ls --include-free", full.into());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdout cannot be written"));
}

#[test]
fn only_data_is_on_stdout_and_colours_are_for_terminals() {
    let dir = TestDirectory::new();
    let said = dir.fencehold("-vv run --key k -- echo data");
    assert_eq!((said.code, said.out.as_str()), (0, "data\n"));
    assert!(["acquire", "INFO", "DEBUG"].iter().any(|logged| said.err.contains(logged)), "{said:?}");
    assert!(!said.err.contains('\u{1b}'), "{said:?}");
    let quiet = dir.fencehold("run --key k -- true");
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    for wrong in ["no=such=level", "fencehold[span]=debug", "fencehold[{key}]=debug"] {
        let said = support::said(dir.command("lease ls").env("FENCEHOLD_LOG", wrong)).ended(2);
        assert!(said.err.contains("FENCEHOLD_LOG: "), "{}", said.err);
    }
    support::said(dir.command("lease ls").env("FENCEHOLD_LOG", "fencehold=warn,")).ended(0);
}

#[test]
fn quiet_leaves_data_and_errors() {
    let dir = TestDirectory::new();
    let told = dir.fencehold("store create");
    assert_eq!((told.code, told.err.contains("is there")), (0, true), "{told:?}");
    let quiet = dir.fencehold("-q store create");
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "", ""));
    let none = dir.fencehold("lease ls --quiet");
    assert_eq!((none.code, none.err.as_str()), (0, ""), "{none:?}");
    dir.fails("-q job claim --queue q", 75, &["no job is ready"]);
    assert_eq!(dir.fencehold("-q -v lease ls").code, 2, "more and less at once");
}

#[test]
fn help_version_completions_and_manuals_come_from_the_same_definition() {
    let dir = TestDirectory::new();
    let help = dir.shows("run --help", &["FENCEHOLD_TOKEN", "75 ", "76 ", "126", "127", "128 + N"]);
    assert_eq!(help.err, "");
    assert!(!help.out.contains("__"), "parts of run are no verbs");
    assert_eq!(dir.fencehold("help run").out, help.out);
    assert_eq!(dir.fencehold("help lease acquire").out, dir.fencehold("lease acquire -h").out);
    dir.fails("help lease nonsense", 2, &["lease nonsense"]);
    let named = dir.json("version");
    assert_eq!(named["version"], env!("CARGO_PKG_VERSION"), "{named}");
    assert!(named["commit"].is_string(), "{named}");
    let version = dir.fencehold("--version");
    assert_eq!(version.out, format!("fencehold {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = dir.shows(&["completions", shell], &["explain"]);
        assert!(!said.out.contains("__watchdog"), "{shell}");
    }
    let pages = dir.path("man/man1");
    assert_eq!(dir.fencehold(&["man", pages.to_str().unwrap()]).code, 0);
    let run = std::fs::read_to_string(pages.join("fencehold-run.1")).unwrap();
    for told in ["EXAMPLES", "build\\-report", "FENCEHOLD_TOKEN", "Exit codes"] {
        assert!(run.contains(told), "{told}: {run}");
    }
    assert!(pages.join("fencehold-lease-acquire.1").exists() && pages.join("fencehold.1").exists());
    assert!(dir.fencehold("man").out.contains(".SH EXAMPLES"));
}

#[test]
fn doctor_finds_a_healthy_store_fine() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold("store create").code, 0);
    for _ in 0..2 {
        for finding in dir.json("doctor")["checks"].as_array().unwrap() {
            assert_eq!(finding["verdict"], "passed", "{finding}");
        }
    }
    let listed = dir.json("lease ls --include-free");
    assert_eq!(listed, json!({ "leases": [] }), "what doctor tried is not in people's way");
    assert_has(&dir.json("store status"), &json!({ "store": "file:", "held_count": 0 }));
}
