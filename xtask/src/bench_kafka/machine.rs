//! The description of the machine for the report, and the probe of its disk.

use crate::interop::toolchain::{output_of, root, target_directory};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The commit of this checkout, `-dirty` where files differ from it.
pub fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty"]).current_dir(root());
    output_of(&mut git).map_or_else(
        |_| "not a git checkout".to_owned(),
        |commit| commit.trim().to_owned(),
    )
}

/// Figures of a broker that `OTTLA_BINARY` names and that is not of this commit stay apart.
const OTHER_BINARY: &str = "-other-binary";

/// The commit of the broker that is measured, as far as the checkout's files are in a commit.
pub fn measured_commit() -> Result<String> {
    let commit = commit();
    let Some(binary) = std::env::var_os("OTTLA_BINARY") else {
        return Ok(commit);
    };
    let version = output_of(Command::new(binary).arg("--version"))?;
    Ok(match is_of(&version, &commit) {
        true => commit,
        false => format!("{commit}{OTHER_BINARY}"),
    })
}

/// Whether `ottla 0.1.0 (71467ac91d95)` is of the clean commit 71467ac9.
fn is_of(version: &str, commit: &str) -> bool {
    let built = version
        .trim()
        .rsplit_once('(')
        .and_then(|(_, built)| built.strip_suffix(')'));
    let is_clean = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    built.is_some_and(|built| is_clean(built) && is_clean(commit) && built.starts_with(commit))
}

/// Refuses to publish into `output` figures of files that are in no commit, or of the broker of
/// another one; before hours of measuring, not after them.
pub fn check_publishing(output: &Path) -> Result<()> {
    let commit = measured_commit()?;
    let is_published = output.starts_with(root().join("docs"));
    ensure!(
        !is_published || !(commit.ends_with("-dirty") || commit.ends_with(OTHER_BINARY)),
        "figures are published of a clean commit and its own broker, this is {commit}"
    );
    Ok(())
}

/// Returns pairs of name and value.
pub fn describe() -> Result<Vec<(String, String)>> {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: String| lines.push((name.to_string(), value.trim().to_string()));
    add("kernel", output_of(Command::new("uname").arg("-srm"))?);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1))
            .unwrap_or("unknown")
            .trim()
            .to_string()
    };
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    add("processor", format!("{cores} x {}", field(&cpu, "model name")));
    add(
        "memory",
        field(
            &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
            "MemTotal",
        ),
    );
    fs::create_dir_all(target_directory())?;
    let mount = output_of(
        Command::new("df")
            .args(["--output=fstype,size,avail", "-h"])
            .arg(target_directory()),
    )?;
    add(
        "file system of the data (type, size, free)",
        mount.lines().last().unwrap_or_default().to_string(),
    );
    add("Ottla", measured_commit()?);
    add(
        "Apache Kafka",
        format!("{}, KRaft, one combined node", crate::kafka::VERSION),
    );
    add("compiler", output_of(Command::new("rustc").arg("--version"))?);
    let mut java = Command::new("java");
    java.arg("-XshowSettings:none").arg("--version");
    add(
        "JVM",
        output_of(&mut java)?
            .lines()
            .next()
            .unwrap_or_default()
            .to_string(),
    );
    add(
        "generator",
        format!(
            "franz-go v1.22.2, {}",
            output_of(Command::new("go").arg("version"))?.trim()
        ),
    );
    add(
        "date",
        output_of(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?,
    );
    add("network", "loopback".to_string());
    add("load average before the run (1, 5, 15 min)", load_average());
    Ok(lines)
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
}

/// Share of the machine's CPU time (0 to 1) that other programs used during `duration`, while
/// nothing of ours ran.
pub fn busy_share(duration: Duration) -> Result<f64> {
    let read = || -> Result<(f64, f64)> {
        let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let fields = text
            .lines()
            .next()
            .context("/proc/stat is empty")?
            .split_whitespace()
            .skip(1);
        let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
        // The fourth and fifth fields are idle and iowait.
        Ok((ticks.iter().take(8).sum(), ticks[3] + ticks[4]))
    };
    let (all, idle) = read()?;
    std::thread::sleep(duration);
    let (all_after, idle_after) = read()?;
    Ok(1.0 - (idle_after - idle) / (all_after - all).max(1.0))
}

/// Repeats an append of 4 KiB and an fdatasync for `duration`; returns sorted milliseconds.
pub fn probe_sync(duration: Duration) -> Result<Vec<f64>> {
    let path = target_directory().join("sync-probe");
    let mut file = File::create(&path).context("creating the probe file")?;
    let block = [7_u8; 4096];
    let mut latencies = Vec::new();
    let started = Instant::now();
    while started.elapsed() < duration {
        file.write_all(&block)?;
        let before = Instant::now();
        file.sync_data()?;
        latencies.push(before.elapsed().as_secs_f64() * 1000.0);
    }
    fs::remove_file(&path)?;
    latencies.sort_by(f64::total_cmp);
    Ok(latencies)
}

/// CPU seconds (user and system, all threads) that `pid` has used.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading /proc/PID/stat")?;
    // The name is in parentheses and may contain blanks; utime and stime are the 12th and 13th
    // field
    // after it.
    let fields: Vec<&str> = text[text.rfind(')').unwrap_or(0) + 1..]
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}

/// What a process has had read from a device, in MiB; a read that the page cache serves does not
/// count.
pub fn device_reads_mib(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).context("reading /proc/PID/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    let bytes: u64 = line.context("no read_bytes in /proc/PID/io")?.parse()?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// A line of /proc/PID/status in MiB: `VmRSS` or `VmHWM`.
pub fn memory_mib(pid: u32, line: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("reading /proc/PID/status")?;
    let found = text
        .lines()
        .find(|found| found.starts_with(line))
        .context("no such line in /proc/PID/status")?;
    let kib: f64 = found
        .split_whitespace()
        .nth(1)
        .context("a number of KiB")?
        .parse()?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_binary_is_of_a_commit_if_it_says_so_and_both_are_clean() {
        assert!(is_of("ottla 0.1.0 (71467ac91d95)\n", "71467ac9"));
        for (version, commit) in [
            ("ottla 0.1.0 (71467ac91d95)", "81467ac9"),
            ("ottla 0.1.0 (71467ac91d95-dirty)", "71467ac9"),
            ("ottla 0.1.0 (71467ac91d95)", "71467ac9-dirty"),
            ("ottla 0.1.0", "71467ac9"),
        ] {
            assert!(!is_of(version, commit), "{version} {commit}");
        }
    }
}
