//! A directory for tests and benches.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is removed when the value is dropped; for tests and benches.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn new(name: &str) -> io::Result<TemporaryDirectory> {
        TemporaryDirectory::below(&std::env::temp_dir(), name)
    }

    fn below(parent: &Path, name: &str) -> io::Result<TemporaryDirectory> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("ottla-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(TemporaryDirectory { path })
    }

    /// Beside the running program, which cargo builds on a disk: the directory of temporary files
    /// may be in memory alone.
    pub fn beside_the_program(name: &str) -> io::Result<TemporaryDirectory> {
        let program = std::env::current_exe()?;
        let parent = program.parent().unwrap_or(Path::new("."));
        TemporaryDirectory::below(parent, name)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // A failure cannot be handled here; the operating system cleans its temporary directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}
