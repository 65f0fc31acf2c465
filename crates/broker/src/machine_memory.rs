//! How much memory this process may use: the machine's, or less where a control group limits it.
//!
//! Shares of memory are computed from this number. In a container the machine's total belongs to
//! all containers: a process that takes an eighth of that is killed before it has used it up.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The memory that may be used, and which file limits it if less than the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    pub bytes: u64,
    /// The control group file with the smallest limit.
    pub limited_by: Option<PathBuf>,
}

impl MachineMemory {
    /// Reads the limit of this process as it is now.
    pub fn look() -> MachineMemory {
        let system = rustix::system::sysinfo();
        let bytes = system.totalram.saturating_mul(u64::from(system.mem_unit));
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let groups = read("/proc/self/cgroup");
        MachineMemory::limited(bytes, &groups, &read("/proc/self/mountinfo"), Path::new("/"))
    }

    /// Returns the smallest of `bytes` and the limits of the process's control groups, from its own
    /// up to the outermost visible one.
    ///
    /// - `groups`, `mounts`: as in `/proc/self/cgroup` and `/proc/self/mountinfo`, cgroups(7).
    /// - `root`: the directory under which the mount points are looked up.
    fn limited(bytes: u64, groups: &str, mounts: &str, root: &Path) -> MachineMemory {
        let mut least = MachineMemory {
            bytes,
            limited_by: None,
        };
        for group in groups.lines().filter_map(Group::parse) {
            for mount in mounts.lines().filter_map(Mount::parse) {
                if mount.version == group.version {
                    least.look_up(&mount, &group, root);
                }
            }
        }
        least
    }

    fn look_up(&mut self, mount: &Mount, group: &Group, root: &Path) {
        let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        // A container sees its own group at the mount point, while the path may be the one outside
        // of it.
        let inside = group.path.strip_prefix(&mount.root).ok();
        let inside = inside.filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))));
        let own = top.join(inside.unwrap_or(Path::new("")));
        for directory in own
            .ancestors()
            .take_while(|directory| directory.starts_with(&top))
        {
            for name in mount.version.limits() {
                let file = directory.join(name);
                // "max" means no limit; so does version 1's largest number, which no machine has.
                let limit = fs::read_to_string(&file)
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                if let Some(limit) = limit.filter(|limit| *limit < self.bytes) {
                    self.bytes = limit;
                    self.limited_by = Some(file);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Files with a limit in bytes. `memory.high` does not kill, but slows a group that exceeds it
    /// to a standstill.
    fn limits(self) -> &'static [&'static str] {
        match self {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        }
    }
}

/// A group of the memory controller, by its path in the hierarchy.
struct Group {
    version: Version,
    path: PathBuf,
}

impl Group {
    /// Parses `4:memory:/docker/id` of version 1 or `0::/user.slice` of version 2; `None` for other
    /// controllers.
    fn parse(line: &str) -> Option<Group> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match (number, controllers) {
            ("0", "") => Version::Two,
            (_, controllers) => controllers
                .split(',')
                .find(|name| *name == "memory")
                .map(|_| Version::One)?,
        };
        Some(Group {
            version,
            path: PathBuf::from(path),
        })
    }
}

/// Where a hierarchy is mounted, and which of its groups is at the mount point.
struct Mount {
    version: Version,
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Parses `31 23 0:28 /root /mount/point rw,relatime shared:9 - cgroup cgroup rw,memory`.
    fn parse(line: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Mount {
            version,
            root: unescaped(root),
            point: unescaped(point),
        })
    }
}

/// Replaces octal escapes: blanks and the like are written as `\040`, proc(5).
fn unescaped(text: &str) -> PathBuf {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, end)) = rest.split_once('\\') {
        plain.push_str(start);
        let code = end.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => plain.push(char::from(code)),
            None => plain.push_str(&rest[start.len()..(start.len() + 4).min(rest.len())]),
        }
        rest = end.get(3..).unwrap_or_default();
    }
    plain.push_str(rest);
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::TemporaryDirectory;

    const MACHINE: u64 = 64 << 30;

    /// A made-up file system with control groups.
    struct Tree(TemporaryDirectory);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            let directory = TemporaryDirectory::create().unwrap();
            for (file, content) in files {
                let file = directory.path().join(file.trim_start_matches('/'));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content).unwrap();
            }
            Tree(directory)
        }

        fn check(&self, groups: &str, mounts: &str, expected: u64, by: Option<&str>) {
            let found = MachineMemory::limited(MACHINE, groups, mounts, self.0.path());
            let by = by.map(|file| self.0.path().join(file.trim_start_matches('/')));
            assert_eq!(
                found,
                MachineMemory {
                    bytes: expected,
                    limited_by: by
                },
                "{groups}"
            );
        }
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "\
        31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
        34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const UNLIMITED: &str = "9223372036854771712\n";

    #[test]
    fn the_smallest_limit_of_all_ancestors_counts() {
        let tree = Tree::new(&[
            ("/sys/fs/cgroup/a/b/c/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/c/memory.high", "8589934592\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "268435456\n"),
            ("/sys/fs/cgroup/a/b/memory.high", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/other/memory.max", "4096\n"),
            ("/sys/fs/memory.max", "4096\n"),
        ]);
        tree.check(
            "0::/a/b/c\n",
            V2,
            256 << 20,
            Some("/sys/fs/cgroup/a/b/memory.max"),
        );
        tree.check("0::/a\n", V2, 1 << 30, Some("/sys/fs/cgroup/a/memory.max"));
        tree.check("0::/\n", V2, MACHINE, None);
        let high = Tree::new(&[
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/a/memory.high", "536870912\n"),
        ]);
        high.check("0::/a\n", V2, 512 << 20, Some("/sys/fs/cgroup/a/memory.high"));
    }

    #[test]
    fn version_1_has_its_own_file_and_its_own_hierarchy() {
        let tree = Tree::new(&[
            (
                "/sys/fs/cgroup/memory/docker/id/memory.limit_in_bytes",
                "268435456\n",
            ),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", UNLIMITED),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
            (
                "/sys/fs/cgroup/cpu,cpuacct/docker/id/memory.limit_in_bytes",
                "1\n",
            ),
            ("/sys/fs/cgroup/unified/memory.max", "1\n"),
        ]);
        let groups = "5:cpu,cpuacct:/docker/id\n4:memory:/docker/id\n1:name=systemd:/x\n";
        let by = "/sys/fs/cgroup/memory/docker/id/memory.limit_in_bytes";
        tree.check(groups, V1, 256 << 20, Some(by));
        tree.check("4:memory:/docker\n", V1, MACHINE, None);
        // Both versions at once: the smaller limit counts.
        let both = Tree::new(&[
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/cgroup/unified/b/memory.max", "536870912\n"),
        ]);
        let by = "/sys/fs/cgroup/unified/b/memory.max";
        both.check("4:memory:/a\n0::/b\n", V1, 512 << 20, Some(by));
    }

    #[test]
    fn a_container_finds_its_own_group_where_it_is_mounted() {
        let tree = Tree::new(&[
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
            ("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "134217728\n"),
        ]);
        let mounts = "35 31 0:32 /docker/id /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let outer = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let inner = "/sys/fs/cgroup/memory/inner/memory.limit_in_bytes";
        tree.check("4:memory:/docker/id\n", mounts, 256 << 20, Some(outer));
        tree.check("4:memory:/docker/id/inner\n", mounts, 128 << 20, Some(inner));
        // Paths outside the mount, and outside the namespace.
        tree.check("4:memory:/docker/identical\n", mounts, 256 << 20, Some(outer));
        tree.check("4:memory:/\n", mounts, 256 << 20, Some(outer));
        let namespace = Tree::new(&[("/sys/fs/cgroup/memory.max", "268435456\n")]);
        let by = "/sys/fs/cgroup/memory.max";
        namespace.check("0::/\n", V2, 256 << 20, Some(by));
        namespace.check("0::/../sibling\n", V2, 256 << 20, Some(by));
    }

    #[test]
    fn an_unreadable_file_is_no_limit() {
        let tree = Tree::new(&[
            ("/sys/fs/cgroup/a/memory.max", "many\n"),
            ("/sys/fs/cgroup/b/memory.max", ""),
            ("/with blank/c/memory.max", "268435456\n"),
        ]);
        for groups in ["0::/a\n", "0::/b\n", "0::/gone\n", "", "nonsense\n0:\n::\n"] {
            tree.check(groups, V2, MACHINE, None);
        }
        tree.check("0::/a\n", "", MACHINE, None);
        tree.check(
            "0::/a\n",
            "1 2 3\n - \n - cgroup2\n1 2 3 / /x rw - cgroup2\n",
            MACHINE,
            None,
        );
        let escaped = "30 23 0:26 / /with\\040blank rw - cgroup2 cgroup2 rw\n";
        tree.check("0::/c\n", escaped, 256 << 20, Some("/with blank/c/memory.max"));
        assert_eq!(unescaped("a\\134b\\"), Path::new("a\\b\\"));
        assert_eq!(unescaped("\\xyz\\0"), Path::new("\\xyz\\0"));
    }

    #[test]
    fn this_process_may_use_no_more_than_the_machine_has() {
        let found = MachineMemory::look();
        let system = rustix::system::sysinfo();
        assert!(found.bytes > 0 && found.bytes <= system.totalram * u64::from(system.mem_unit));
    }
}
