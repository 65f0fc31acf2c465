//! Makes data cold: writes a topic's files back and drops them from the page cache.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Drops the log files of one partition's directory from the page cache, and returns their size in
/// bytes.
///
/// - Shape: indexes stay, because brokers map them into memory, where no other process can drop
///   them.
/// - Errors: the directory is not on this machine, or its files may not be read.
pub fn drop_from_cache(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let file = File::open(&path)?;
        // Only clean pages can be dropped.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        bytes += file.metadata()?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_files_are_dropped_and_their_bytes_counted() {
        let directory = std::env::temp_dir().join(format!("ottla-lab-cold-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("00000000000000000000.log"), vec![7; 5_000]).unwrap();
        fs::write(directory.join("00000000000000000000.index"), vec![7; 100]).unwrap();
        let dropped = drop_from_cache(&directory);
        let kept = fs::read(directory.join("00000000000000000000.log"));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(dropped.unwrap(), 5_000);
        assert_eq!(kept.unwrap(), vec![7; 5_000]);
        assert_eq!(
            drop_from_cache(&directory).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
