//! The files of a report, created before the run so that a full or read-only disk is noticed early.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_lab::report::Report;

use super::Failure;

/// Both files, created empty.
pub struct Files {
    json: (PathBuf, File),
    page: (PathBuf, File),
}

/// Free space required before the run; a report of many points has a few hundred KiB.
const ROOM_BYTES: u64 = 4 << 20;

impl Files {
    /// Creates the directory and both files.
    ///
    /// - Errors: the directory cannot be created, or has no room for a report.
    pub fn prepare(directory: &Path, name: &str) -> Result<Files, Failure> {
        let cannot = |path: &Path, error: &dyn std::fmt::Display| {
            Failure::failed(format!(
                "the report cannot be written to {}: {error}",
                path.display()
            ))
        };
        fs::create_dir_all(directory).map_err(|error| cannot(directory, &error))?;
        let space = rustix::fs::statvfs(directory).map_err(|error| cannot(directory, &error))?;
        let free_bytes = space.f_bavail * space.f_frsize;
        if free_bytes < ROOM_BYTES {
            return Err(cannot(
                directory,
                &format_args!("{free_bytes} bytes are free, {ROOM_BYTES} are needed"),
            ));
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let create = |extension: &str| {
            let path = directory.join(format!("{name}-{now}.{extension}"));
            let file = File::create(&path).map_err(|error| cannot(&path, &error))?;
            Ok::<_, Failure>((path, file))
        };
        Ok(Files {
            json: create("json")?,
            page: create("html")?,
        })
    }

    pub fn write(mut self, report: &Report, page: &str) -> Result<(PathBuf, PathBuf), Failure> {
        let json = serde_json::to_string_pretty(report).map_err(Failure::failed)?;
        for ((path, file), text) in [(&mut self.json, json.as_str()), (&mut self.page, page)] {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
        Ok((self.json.0, self.page.0))
    }
}
