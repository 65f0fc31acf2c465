//! The program as `cargo xtask` starts it. CI uses the binary that is built for these tests.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::process::Command;

/// Returns the exit status and standard error.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let xtask = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .output()
        .unwrap();
    (xtask.status.code(), String::from_utf8(xtask.stderr).unwrap())
}

#[test]
fn wrong_usage_is_refused_with_what_there_is() {
    let (status, usage) = refused(&["nonsense"]);
    assert_eq!(status, Some(2));
    assert!(
        usage.contains("\n  tidy ") && usage.contains("\n  interop "),
        "{usage}"
    );
    let (status, parts) = refused(&["interop", "--only", "clients,nonsense"]);
    assert_eq!(status, Some(1));
    assert!(
        parts.contains("not nonsense") && parts.contains("telemetry, oracle"),
        "{parts}"
    );
    let (status, jobs) = refused(&["interop", "--jobs", "0"]);
    assert_eq!(status, Some(1));
    assert!(jobs.contains("--jobs takes a number from 1 on"), "{jobs}");
}
