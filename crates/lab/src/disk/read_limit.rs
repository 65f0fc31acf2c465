//! A limit on how fast one process reads from a disk: a separate control group, version 1 (`blkio`)
//! or 2 (`io`).

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{major, minor};

/// The kernel removes a group only when its last thread has left, which may take a moment.
const LEAVING: Duration = Duration::from_millis(10);
const LEAVING_TRIES: u32 = 200;

/// In force as long as this lives; then the process is moved back to its group.
#[derive(Debug)]
pub struct ReadLimit {
    process: u32,
    parent: PathBuf,
    group: PathBuf,
}

impl ReadLimit {
    /// Limits what `process` reads from the disk that holds `directory`.
    ///
    /// - Errors: as text: the system has no such control, or this process may not use it.
    pub fn begin(process: u32, directory: &Path, bytes_per_second: u64) -> Result<ReadLimit, String> {
        let device = disk_of(directory, Path::new("/sys/dev/block"))
            .map_err(|error| format!("{} lies on no disk: {error}", directory.display()))?;
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let place = place(
            &read("/proc/self/mountinfo")?,
            &read(&format!("/proc/{process}/cgroup"))?,
        )?;
        ReadLimit::begin_in(&place, process, &device, bytes_per_second)
    }

    fn begin_in(
        place: &ControlGroup,
        process: u32,
        device: &str,
        bytes_per_second: u64,
    ) -> Result<ReadLimit, String> {
        let group = place.parent.join(format!("ottla-bench-{process}"));
        let told = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("{path}: {error}")
        };
        if place.version == Version::Two {
            let control = place.parent.join("cgroup.subtree_control");
            fs::write(&control, "+io").map_err(told(&control))?;
        }
        match fs::create_dir(&group) {
            // Left behind by a run that was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(told(&group))?,
        }
        let limit = ReadLimit {
            process,
            parent: place.parent.clone(),
            group,
        };
        let (file, line) = match place.version {
            Version::One => (
                "blkio.throttle.read_bps_device",
                format!("{device} {bytes_per_second}"),
            ),
            Version::Two => ("io.max", format!("{device} rbps={bytes_per_second}")),
        };
        let file = limit.group.join(file);
        fs::write(&file, line).map_err(told(&file))?;
        let members = limit.group.join("cgroup.procs");
        fs::write(&members, process.to_string()).map_err(told(&members))?;
        Ok(limit)
    }
}

impl Drop for ReadLimit {
    fn drop(&mut self) {
        // A process that has ended has left.
        let _ = fs::write(self.parent.join("cgroup.procs"), self.process.to_string());
        for _ in 0..LEAVING_TRIES {
            match fs::remove_dir(&self.group) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => thread::sleep(LEAVING),
                _ => return,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The group of a process that has the required controller.
#[derive(Debug, PartialEq, Eq)]
struct ControlGroup {
    version: Version,
    parent: PathBuf,
}

/// - `mounts`: `/proc/self/mountinfo`; `groups`: `/proc/PID/cgroup`.
fn place(mounts: &str, groups: &str) -> Result<ControlGroup, String> {
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let found = match controllers {
            _ if controllers.split(',').any(|name| name == "blkio") => {
                let has_it = |options: &str| options.split(',').any(|option| option == "blkio");
                (Version::One, mount_point(mounts, "cgroup", has_it))
            }
            "" => (Version::Two, mount_point(mounts, "cgroup2", |_| true)),
            _ => continue,
        };
        if let (version, Some(mount)) = found {
            let parent = Path::new(mount).join(path.trim_start_matches('/'));
            return Ok(ControlGroup { version, parent });
        }
    }
    Err(String::from("this system mounts no control group for disks"))
}

/// The mount point of the first file system of this type whose own options match.
fn mount_point<'a>(mounts: &'a str, kind: &str, is_wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        // After " - ": type, source, the file system's options.
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let is_kind = tail.next()? == kind;
        let options = tail.nth(1)?;
        // Before: mount id, parent, device, root, mount point.
        (is_kind && is_wanted(options)).then(|| head.split(' ').nth(4))?
    })
}

/// Returns `major:minor` of the whole disk: limits of version 1 do not apply to partitions.
fn disk_of(directory: &Path, devices: &Path) -> io::Result<String> {
    let device = fs::metadata(directory)?.dev();
    let own = devices.join(format!("{}:{}", major(device), minor(device)));
    let own = fs::canonicalize(own)?;
    let disk = match own.join("partition").exists() {
        true => own.parent().unwrap_or(&own),
        false => &own,
    };
    Ok(fs::read_to_string(disk.join("dev"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 29 0:26 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 29 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_group_with_the_control_is_found() {
        let groups = "8:pids:/\n7:blkio:/brokers\n4:memory:/x\n0::/user\n";
        let expected = ControlGroup {
            version: Version::One,
            parent: PathBuf::from("/sys/fs/cgroup/blkio/brokers"),
        };
        assert_eq!(place(MOUNTS, groups), Ok(expected));
        let expected = ControlGroup {
            version: Version::Two,
            parent: PathBuf::from("/sys/fs/cgroup/unified/user.slice"),
        };
        assert_eq!(place(MOUNTS, "0::/user.slice\n"), Ok(expected));
        assert!(place("", "0::/\n").unwrap_err().contains("no control group"));
    }

    fn check(version: Version, file: &str, line: &str) {
        let parent = std::env::temp_dir().join(format!("ottla-lab-limit-{version:?}-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let place = ControlGroup {
            version,
            parent: parent.clone(),
        };
        let limit = ReadLimit::begin_in(&place, 4_711, "254:0", 25_000_000).unwrap();
        let group = parent.join("ottla-bench-4711");
        assert_eq!(fs::read_to_string(group.join(file)).unwrap(), line);
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).unwrap(), "4711");
        drop(limit);
        assert_eq!(fs::read_to_string(parent.join("cgroup.procs")).unwrap(), "4711");
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn a_process_is_put_into_a_group_and_back() {
        check(Version::One, "blkio.throttle.read_bps_device", "254:0 25000000");
        check(Version::Two, "io.max", "254:0 rbps=25000000");
    }

    #[test]
    fn a_group_that_cannot_be_made_is_reported_by_its_path() {
        let place = ControlGroup {
            version: Version::One,
            parent: PathBuf::from("/nowhere/at/all"),
        };
        let why = ReadLimit::begin_in(&place, 1, "254:0", 1).unwrap_err();
        assert!(why.starts_with("/nowhere/at/all/ottla-bench-1: "), "{why}");
    }

    #[test]
    fn a_partition_stands_for_its_disk() {
        let devices = std::env::temp_dir().join(format!("ottla-lab-devices-{}", std::process::id()));
        let device = fs::metadata(std::env::temp_dir()).unwrap().dev();
        let own = format!("{}:{}", major(device), minor(device));
        let partition = devices.join("disk").join("disk1");
        fs::create_dir_all(&partition).unwrap();
        fs::write(devices.join("disk/dev"), "8:0\n").unwrap();
        fs::write(partition.join("dev"), "8:1\n").unwrap();
        std::os::unix::fs::symlink(&partition, devices.join(own)).unwrap();
        let whole = disk_of(&std::env::temp_dir(), &devices);
        fs::write(partition.join("partition"), "1\n").unwrap();
        let of_partition = disk_of(&std::env::temp_dir(), &devices);
        fs::remove_dir_all(&devices).unwrap();
        assert_eq!(
            (whole.unwrap(), of_partition.unwrap()),
            ("8:1".into(), "8:0".into())
        );
    }
}
