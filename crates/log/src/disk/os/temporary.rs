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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ottla-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(TemporaryDirectory { path })
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
