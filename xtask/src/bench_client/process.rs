//! CPU time and peak memory of another process, exact to the nanosecond and the page.

use anyhow::{Context, Result, ensure};
use std::fs;

/// User and system seconds of all threads of `pid`, including ended ones.
///
/// `/proc/PID/stat` counts in hundredths of a second, several percent of the times measured here.
#[expect(
    unsafe_code,
    reason = "no safe wrapper offers the processor-time clock of another process"
)]
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write to the variable whose address they get, and nothing else.
    let outcomes = unsafe {
        let found = libc::clock_getcpuclockid(pid, &raw mut clock);
        (found, libc::clock_gettime(clock, &raw mut time))
    };
    ensure!(outcomes == (0, 0), "no processor time of process {pid}");
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Peak resident memory in MiB, since the exec of the program and not since its parent's fork.
pub fn peak_memory_mib(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("reading /proc/PID/status")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("VmHWM in /proc/PID/status")?;
    let kib: f64 = line
        .split_whitespace()
        .next()
        .context("a number of KiB")?
        .parse()?;
    Ok(kib / 1024.0)
}
