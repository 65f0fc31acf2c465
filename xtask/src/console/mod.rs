//! `cargo xtask console [--brief | --screenshots]`: opens every page of the console in Chromium.
//!
//! Two sets of pages: those of a real broker under load, and those of invented brokers in states
//! that are hard to reach (`states.rs`). What is checked is in
//! `tests/console/walk.mjs`. With `--brief` only the invented ones, in two sizes; with
//! `--screenshots` it also writes four pages of the invented broker to `docs/images`.

mod render;
mod states;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::interop::toolchain;
use crate::tidy;

/// Names of the program in Debian, its derivatives and Chrome's own packages.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// What a picture of the documentation may have: they are in the history for ever.
const PICTURE_BYTES_MAX: u64 = 150_000;

/// Bytes of a value that is too long to be shown.
const LARGE_BYTES: &str = "100000";

pub fn run(arguments: &[String]) -> Result<()> {
    let home = tidy::repository().join("target/console");
    fs::create_dir_all(&home)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => walk(&home, false),
        ["--brief"] => walk_briefly(&home),
        ["--screenshots"] => walk(&home, true),
        ["--render"] => render::run(&home, "2000,40000"),
        ["--render", "--partitions", numbers] => render::run(&home, numbers),
        _ => {
            bail!("usage: cargo xtask console [--brief | --screenshots | --render [--partitions N,N]]")
        }
    }
}

/// The pages of invented brokers, which need no broker.
fn walk_briefly(home: &Path) -> Result<()> {
    let mut walk = prepared(home)?;
    walk.args(["--brief", "yes"]);
    check(&mut walk, "the console has problems, see above")
}

fn walk(home: &Path, is_pictured: bool) -> Result<()> {
    let mut walk = prepared(home)?;
    let ottla = toolchain::build_ottla()?;
    let broker = Served::start(&ottla, home)?;
    let mut load = Load::start(&ottla, &broker)?;
    let shots = home.join("shots");
    let pictures = tidy::repository().join("docs/images");
    walk.args(["--live", &broker.console, "--large", LARGE_BYTES])
        .arg("--shots")
        .arg(&shots);
    if is_pictured {
        fs::create_dir_all(&pictures)?;
        walk.arg("--pictures").arg(&pictures);
    }
    let problems = format!(
        "the console has problems, see above; screenshots are in {}",
        shots.display()
    );
    check(&mut walk, &problems)?;
    load.stop();
    match is_pictured {
        true => check_pictures(&pictures),
        false => Ok(()),
    }
}

/// The walk with the pages of invented brokers.
fn prepared(home: &Path) -> Result<Command> {
    let browser = find_browser()?;
    install(home)?;
    let states = home.join("states");
    if states.exists() {
        fs::remove_dir_all(&states)?;
    }
    states::write(&states).with_context(|| states.display().to_string())?;
    let mut walk = Command::new("node");
    walk.arg(home.join("walk.mjs"))
        .args(["--chromium", &browser])
        .arg("--states")
        .arg(&states);
    Ok(walk)
}

fn check(walk: &mut Command, problems: &str) -> Result<()> {
    let walked = walk.status();
    let walked = walked.context("node is needed (apt-get install nodejs npm)")?;
    ensure!(walked.success(), "{problems}");
    Ok(())
}

fn find_browser() -> Result<String> {
    let works = |name: &&&str| {
        let mut asked = Command::new(name);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    let found = BROWSERS
        .iter()
        .find(works)
        .context("no Chromium was found (apt-get install chromium)")?;
    let path = Command::new("sh")
        .args(["-c", &format!("command -v {found}")])
        .output()?;
    Ok(String::from_utf8(path.stdout)?.trim().to_owned())
}

/// Installs puppeteer-core and axe-core below the target directory.
fn install(home: &Path) -> Result<()> {
    let from = tidy::repository().join("tests/console");
    for file in ["package.json", "walk.mjs"] {
        fs::copy(from.join(file), home.join(file))?;
    }
    let installed = Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--omit=dev",
            "--loglevel=error",
        ])
        .current_dir(home)
        .status()
        .context("npm is needed (apt-get install npm)")?;
    ensure!(installed.success(), "npm install failed");
    Ok(())
}

/// A broker with its console.
pub struct Served {
    child: Child,
    pub bootstrap: String,
    pub console: String,
}

impl Served {
    pub fn start(ottla: &Path, home: &Path) -> Result<Served> {
        let data = home.join("data");
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        let mut child = Command::new(ottla)
            .args(["serve", "--override", &format!("log.dirs={}", data.display())])
            .args(["--override", "listeners=PLAINTEXT://127.0.0.1:0"])
            .args(["--override", "ottla.admin.listener=127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(fs::File::create(home.join("broker.log"))?)
            .spawn()?;
        let mut ready = String::new();
        let stdout = child.stdout.take().context("the broker's output is piped")?;
        BufReader::new(stdout).read_line(&mut ready)?;
        let after = |mark: &str| -> Result<String> {
            let (_, rest) = ready
                .split_once(mark)
                .with_context(|| format!("no {mark} in {ready:?}"))?;
            Ok(rest.split([' ', ',', '\n']).next().unwrap_or_default().to_owned())
        };
        let (bootstrap, console) = (after("PLAINTEXT://"), after("admin="));
        let (bootstrap, console) = (bootstrap?, console?);
        Ok(Served {
            child,
            bootstrap,
            console,
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A producer and a consumer with a group.
struct Load(Vec<Child>);

impl Load {
    fn start(ottla: &Path, broker: &Served) -> Result<Load> {
        let client = |arguments: &[&str]| {
            let mut client = Command::new(ottla);
            client
                .args(arguments)
                .args(["--bootstrap-server", &broker.bootstrap])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            client
        };
        let produce = |topic: &str, records: &str, bytes: &str, rate: &str| {
            let mut words = vec!["perf", "produce", "--topic", topic, "--num-records", records];
            words.extend(["--record-size", bytes, "--throughput", rate]);
            client(&words)
        };
        let written = produce("large", "3", LARGE_BYTES, "-1").status()?;
        ensure!(written.success(), "ottla perf produce wrote no large records");
        let mut consumer = vec!["perf", "consume", "--topic", "orders"];
        consumer.extend(["--messages", "100000000", "--group", "billing"]);
        Ok(Load(vec![
            produce("orders", "100000000", "100", "2000").spawn()?,
            client(&consumer).spawn()?,
        ]))
    }

    fn stop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

fn check_pictures(pictures: &Path) -> Result<()> {
    for entry in fs::read_dir(pictures)? {
        let entry = entry?;
        let bytes = entry.metadata()?.len();
        let path = entry.path();
        ensure!(
            bytes <= PICTURE_BYTES_MAX,
            "{} has {bytes} bytes, more than {PICTURE_BYTES_MAX}",
            path.display()
        );
    }
    Ok(())
}
