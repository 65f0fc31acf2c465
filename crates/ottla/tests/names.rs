//! Log and terminal injection: a client id with line breaks and escape sequences, in every output
//! that shows client ids.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_broker::text::is_printable;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use rustix::process::{Pid, Signal, kill_process};
use support::Writer;

const NAME: &str =
    "evil\n2026-01-01T00:00:00.000000Z ERROR disk lost\r\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}";

const HANG: Duration = Duration::from_secs(60);

fn serve(directory: &str) -> (Child, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("serve")
        .args(["--override", &format!("log.dirs={directory}")])
        .args(["--override", "listeners=PLAINTEXT://127.0.0.1:0"])
        .args(["--override", "ottla.admin.listener=127.0.0.1:0"])
        // Every request is logged.
        .args(["--override", "ottla.slow.request.ms=0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let word = |start: &str| {
        let rest = line.split(start).nth(1).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let (address, admin) = (word("PLAINTEXT://"), word("admin=http://"));
    (child, address, admin)
}

/// Returns a command's standard output and standard error.
fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    text(output.stdout) + &text(output.stderr)
}

fn check_printable(what: &str, text: &str) {
    let raw = text
        .chars()
        .find(|letter| *letter != '\n' && !is_printable(*letter));
    assert_eq!(raw, None, "{what}: {text:?}");
    assert!(
        text.lines().all(|line| !line.starts_with("2026-01-01")),
        "{what}: {text}"
    );
}

#[test]
fn a_client_cannot_forge_a_line_or_move_a_cursor_wherever_its_name_is_shown() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let (mut child, address, admin) = serve(directory.path().to_str().unwrap());
    let mut writer = Writer::connect_as(NAME, address.parse().unwrap());
    writer.create_topic("orders", 1);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1, None, Some(b"a"), &[]);
    let batch = builder.finish();
    let jobs: [&[&str]; 7] = [
        &["tenants", "--admin", &admin],
        &["tenants", "--admin", &admin, "--format", "json"],
        &["quota", "show", "--admin", &admin],
        &["quota", "show", "--admin", &admin, "--format", "json"],
        &["quota", "suggest", "--admin", &admin],
        &["doctor", "--admin", &admin],
        &["doctor", "--admin", &admin, "--format", "json"],
    ];
    for job in jobs {
        let began = Instant::now();
        // The doctor reads the broker's counts every five seconds.
        loop {
            writer.append("orders", 0, &batch);
            let text = said(job);
            check_printable(&job.join(" "), &text);
            if text.contains("evil") {
                break;
            }
            assert!(began.elapsed() < HANG, "{job:?} never showed the client: {text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains(r#"client_id="evil\n2026"#), "{log}");
    check_printable("the log", &log);
    assert!(log.lines().all(|line| line.len() < 4_096));
}
