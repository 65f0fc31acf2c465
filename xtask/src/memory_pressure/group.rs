//! A control group with a memory limit, for one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Mount points of the memory controller: of version 1, and of the unified hierarchy of version 2.
const VERSION_1: &str = "/sys/fs/cgroup/memory";
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group, removed when dropped; its process must have ended by then.
pub struct ControlGroup {
    path: PathBuf,
    is_version_1: bool,
}

impl ControlGroup {
    /// Creates a group.
    ///
    /// - Errors: this user, or this machine, cannot create control groups.
    pub fn make(limit_bytes: u64) -> Result<ControlGroup> {
        let is_version_1 = Path::new(VERSION_1).join("memory.limit_in_bytes").exists();
        let top = if is_version_1 { VERSION_1 } else { VERSION_2 };
        let path = Path::new(top).join(format!("ottla-memory-pressure-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let group = ControlGroup { path, is_version_1 };
        let file = if is_version_1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        if !group.path.join(file).exists() {
            bail!("{} has no memory controller", group.path.display());
        }
        group.write(file, &limit_bytes.to_string())?;
        if !is_version_1 {
            // Without swap, so that the limit covers all memory.
            let _ = group.write("memory.swap.max", "0");
        }
        Ok(group)
    }

    pub fn version(&self) -> u8 {
        if self.is_version_1 { 1 } else { 2 }
    }

    /// Returns a command that joins the group before its program starts.
    pub fn command(&self, program: &Path) -> Command {
        let mut shell = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        shell
            .args(["-c", enter])
            .arg(self.path.join("cgroup.procs"))
            .arg(program);
        shell
    }

    /// Peak memory, including the page cache.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = if self.is_version_1 {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        self.read(file)?.trim().parse().ok()
    }

    /// The number of out-of-memory kills in the group.
    pub fn kills(&self) -> Option<u64> {
        let file = if self.is_version_1 {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        let text = self.read(file)?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
