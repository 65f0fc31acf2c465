//! The files of a log directory other than partitions, and the names of partition directories.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ottla_wire::primitives::Uuid;

use crate::checkpoint::{read_file, temporary_path, write_file, write_temporary};
use crate::disk::{Disk, OpenMode};
use crate::error::{LogError, is_full};
use crate::leader_epoch::LeaderEpochs;
use crate::segment::{FileKind, file_path};

pub const LOCK_FILE: &str = ".lock";
pub const META_PROPERTIES_FILE: &str = "meta.properties";
pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";

/// The limit of directory names on all common file systems.
const DIRECTORY_NAME_BYTES_MAX: usize = 255;
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Whether Kafka allows this topic name. The rule also keeps a topic from escaping its directory.
pub fn is_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= TOPIC_NAME_BYTES_MAX
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// The kinds of partition directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionDirectoryKind {
    Live,
    /// Renamed for removal; its contents no longer exist for clients.
    Deleted,
    /// Its topic is unknown; kept for inspection.
    Stray,
    /// A replica being copied from another directory.
    Future,
}

/// The parsed name of a partition's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDirectory {
    pub topic: String,
    pub partition: i32,
    pub kind: PartitionDirectoryKind,
}

impl PartitionDirectory {
    /// Parses a directory name; `None` if it is not a partition's.
    pub fn parse(name: &str) -> Option<PartitionDirectory> {
        let suffixed = [
            ("-delete", PartitionDirectoryKind::Deleted),
            ("-stray", PartitionDirectoryKind::Stray),
            ("-future", PartitionDirectoryKind::Future),
        ];
        for (suffix, kind) in suffixed {
            // `orders-0.<32 hex digits>-delete`
            if let Some((live, unique)) = name.strip_suffix(suffix).and_then(|rest| rest.rsplit_once('.'))
                && unique.len() == 32
                && unique.bytes().all(|byte| byte.is_ascii_hexdigit())
            {
                return PartitionDirectory::parse_live(live, kind);
            }
        }
        PartitionDirectory::parse_live(name, PartitionDirectoryKind::Live)
    }

    fn parse_live(name: &str, kind: PartitionDirectoryKind) -> Option<PartitionDirectory> {
        let (topic, partition) = name.rsplit_once('-')?;
        let digits = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
        let partition = partition.parse().ok().filter(|_| digits)?;
        is_topic_name(topic).then(|| PartitionDirectory {
            topic: topic.to_string(),
            partition,
            kind,
        })
    }
}

/// Returns a name like `orders-0`.
pub fn partition_directory_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// Returns `orders-0.<unique>-delete`, with the topic shortened if necessary. `unique` avoids
/// collisions.
pub fn deleted_directory_name(topic: &str, partition: i32, unique: Uuid) -> String {
    suffixed_directory_name(topic, partition, unique, "-delete")
}

/// Returns `orders-0.<unique>-stray`.
pub fn stray_directory_name(topic: &str, partition: i32, unique: Uuid) -> String {
    suffixed_directory_name(topic, partition, unique, "-stray")
}

fn suffixed_directory_name(topic: &str, partition: i32, unique: Uuid, suffix: &str) -> String {
    let unique: String = unique.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let tail = format!("-{partition}.{unique}{suffix}");
    let topic_bytes = topic.len().min(DIRECTORY_NAME_BYTES_MAX - tail.len());
    // Topic names are ASCII; any other name is cut at a character boundary.
    let mut end = topic_bytes;
    while !topic.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{tail}", &topic[..end])
}

/// Removes a directory and the files in it, one level deep. Files that no longer exist are no
/// error.
pub fn remove_partition_directory(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let entries = match disk.list(directory) {
        Err(error) if gone(&error) => return Ok(()),
        entries => entries.map_err(|source| LogError::io("list", directory, source))?,
    };
    for entry in entries {
        match disk.remove_file(&entry.path) {
            Err(error) if !gone(&error) => return Err(LogError::io("remove", &entry.path, error)),
            _ => {}
        }
    }
    match disk.remove_directory(directory) {
        Err(error) if !gone(&error) => Err(LogError::io("remove", directory, error)),
        _ => Ok(()),
    }
}

/// Returns the topic id that a partition's directory belongs to; `None` without the file.
pub fn read_partition_metadata(disk: &dyn Disk, directory: &Path) -> Result<Option<Uuid>, LogError> {
    let path = directory.join(PARTITION_METADATA_FILE);
    let Some(bytes) = read_file(disk, &path)? else {
        return Ok(None);
    };
    let corrupt = |reason: &str| LogError::corrupt(&path, 0, reason);
    let text = std::str::from_utf8(&bytes).map_err(|_| corrupt("not text"))?;
    let mut topic_id = None;
    let mut version = None;
    for line in text.lines() {
        match line
            .split_once(':')
            .map(|(key, value)| (key.trim(), value.trim()))
        {
            Some(("version", value)) => version = Some(value),
            Some(("topic_id", value)) => topic_id = value.parse::<Uuid>().ok(),
            _ => return Err(corrupt("line without a key")),
        }
    }
    if version != Some("0") {
        return Err(corrupt("version is not 0"));
    }
    topic_id.map(Some).ok_or_else(|| corrupt("no topic id"))
}

/// Returns the newest leader epoch stored in a partition's directory; `None` where the file is
/// missing or damaged.
pub fn last_leader_epoch(disk: &dyn Disk, directory: &Path) -> Result<Option<i32>, LogError> {
    let bytes = read_file(disk, &directory.join(crate::LEADER_EPOCH_FILE))?;
    let epochs = bytes.and_then(|bytes| LeaderEpochs::decode(&bytes).ok());
    Ok(epochs
        .and_then(|epochs| epochs.latest())
        .map(|entry| entry.leader_epoch))
}

/// Writes `partition.metadata` and makes it durable: without it a log is treated as stray.
pub fn write_partition_metadata(disk: &dyn Disk, directory: &Path, topic_id: Uuid) -> Result<(), LogError> {
    let text = partition_metadata_text(topic_id);
    write_file(disk, &directory.join(PARTITION_METADATA_FILE), text.as_bytes())
}

// Like Kafka, without a newline at the end.
fn partition_metadata_text(topic_id: Uuid) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// Creates the directories of new partitions, each with its `partition.metadata` and the files of
/// an empty segment. All of it is durable on return.
///
/// Everything of one kind is synced together: a sync after every step would wait for one journal
/// commit of the file system each.
pub fn create_partition_directories(
    disk: &dyn Disk,
    log_directory: &Path,
    partitions: &[NewPartitionDirectory],
) -> Result<(), LogError> {
    let mut metadata_files = Vec::with_capacity(partitions.len());
    for partition in partitions {
        disk.create_directories(&partition.path)
            .map_err(|source| creation_error(&partition.path, source))?;
        let text = partition_metadata_text(partition.topic_id);
        metadata_files.push(write_temporary(disk, &partition.metadata(), text.as_bytes())?);
    }
    disk.sync_all(&metadata_files, &[])
        .map_err(|source| creation_error(log_directory, source))?;
    drop(metadata_files);
    for partition in partitions {
        let finish = || {
            disk.rename(&temporary_path(&partition.metadata()), &partition.metadata())?;
            // Kafka treats a segment without index files as damaged.
            for kind in [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex] {
                disk.open(&file_path(&partition.path, 0, kind), OpenMode::Create)?;
            }
            Ok(())
        };
        finish().map_err(|source| creation_error(&partition.path, source))?;
    }
    let directories = partitions.iter().map(|partition| &*partition.path);
    let directories: Vec<&Path> = directories.chain([log_directory]).collect();
    disk.sync_all(&[], &directories)
        .map_err(|source| LogError::io("sync", log_directory, source))
}

/// A partition whose directory is to be created.
#[derive(Clone, Debug)]
pub struct NewPartitionDirectory {
    pub path: PathBuf,
    pub topic_id: Uuid,
}

impl NewPartitionDirectory {
    fn metadata(&self) -> PathBuf {
        self.path.join(PARTITION_METADATA_FILE)
    }
}

fn creation_error(path: &Path, source: io::Error) -> LogError {
    if is_full(&source) {
        return LogError::NoSpace {
            path: path.to_path_buf(),
            needed_bytes: 0,
        };
    }
    LogError::io("create", path, source)
}

/// Returns the broker epoch in the file that marks a clean stop (-1 when unknown); `None` without
/// the file.
pub fn read_clean_shutdown(disk: &dyn Disk, log_directory: &Path) -> Result<Option<i64>, LogError> {
    let Some(bytes) = read_file(disk, &log_directory.join(CLEAN_SHUTDOWN_FILE))? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let epoch = text.split_once("\"brokerEpoch\":").and_then(|(_, rest)| {
        let digits = rest.trim_start();
        let end = digits
            .find(|c: char| c != '-' && !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits[..end].parse().ok()
    });
    Ok(Some(epoch.unwrap_or(-1)))
}

/// Marks a clean stop. Everything else must already be durable.
pub fn write_clean_shutdown(
    disk: &dyn Disk,
    log_directory: &Path,
    broker_epoch: i64,
) -> Result<(), LogError> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    write_file(disk, &log_directory.join(CLEAN_SHUTDOWN_FILE), text.as_bytes())
}

/// `meta.properties`, version 1: the identity of a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: i32,
    /// Absent before Kafka 3.7.
    pub directory_id: Option<Uuid>,
}

impl fmt::Display for MetaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#")?;
        writeln!(f, "cluster.id={}", self.cluster_id)?;
        if let Some(directory_id) = self.directory_id {
            writeln!(f, "directory.id={directory_id}")?;
        }
        writeln!(f, "node.id={}", self.node_id)?;
        writeln!(f, "version=1")
    }
}

impl MetaProperties {
    /// Returns `None` without the file: the directory was never used.
    pub fn read(disk: &dyn Disk, log_directory: &Path) -> Result<Option<MetaProperties>, LogError> {
        let path = log_directory.join(META_PROPERTIES_FILE);
        let Some(bytes) = read_file(disk, &path)? else {
            return Ok(None);
        };
        MetaProperties::parse(&String::from_utf8_lossy(&bytes))
            .map(Some)
            .map_err(|reason| LogError::corrupt(&path, 0, reason))
    }

    pub fn write(&self, disk: &dyn Disk, log_directory: &Path) -> Result<(), LogError> {
        write_file(
            disk,
            &log_directory.join(META_PROPERTIES_FILE),
            self.to_string().as_bytes(),
        )
    }

    fn parse(text: &str) -> Result<MetaProperties, String> {
        let value = |key: &str| {
            text.lines()
                .map(str::trim)
                .filter(|line| !line.starts_with('#'))
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim())
        };
        match value("version") {
            Some("1") => {}
            Some(version) => return Err(format!("version {version} is not 1")),
            None => return Err("no version".to_string()),
        }
        let node_id = value("node.id").ok_or("no node.id")?;
        Ok(MetaProperties {
            cluster_id: value("cluster.id").ok_or("no cluster.id")?.to_string(),
            node_id: node_id
                .parse()
                .map_err(|_| format!("node.id '{node_id}' is not a number"))?,
            directory_id: value("directory.id")
                .map(|id| {
                    id.parse()
                        .map_err(|_| format!("directory.id '{id}' is not 16 bytes in base64"))
                })
                .transpose()?,
        })
    }
}

/// Returns the directory of a partition.
pub fn partition_directory(log_directory: &Path, topic: &str, partition: i32) -> PathBuf {
    log_directory.join(partition_directory_name(topic, partition))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    fn check_name(name: &str, expected: Option<(&str, i32, PartitionDirectoryKind)>) {
        let parsed = PartitionDirectory::parse(name);
        let parsed = parsed
            .as_ref()
            .map(|parsed| (parsed.topic.as_str(), parsed.partition, parsed.kind));
        assert_eq!(parsed, expected, "{name}");
    }

    #[test]
    fn directory_names_are_parsed_from_the_right() {
        use PartitionDirectoryKind::*;
        check_name("orders-0", Some(("orders", 0, Live)));
        check_name("a-b-12", Some(("a-b", 12, Live)));
        check_name(
            "orders-0.0123456789abcdef0123456789abcdef-delete",
            Some(("orders", 0, Deleted)),
        );
        check_name(
            "a.b-7.0123456789abcdef0123456789abcdef-stray",
            Some(("a.b", 7, Stray)),
        );
        check_name(
            "a.b-7.0123456789abcdef0123456789abcdef-future",
            Some(("a.b", 7, Future)),
        );
        for name in [
            "",
            "orders",
            "-0",
            "orders-",
            "orders-x",
            "orders-+1",
            "..-0",
            ".lock",
            "or ders-0",
            "a/b-0",
        ] {
            check_name(name, None);
        }
    }

    #[test]
    fn a_long_topic_is_shortened_when_it_is_deleted() {
        let topic = "t".repeat(249);
        let name = deleted_directory_name(&topic, 10, Uuid([0xab; 16]));
        assert_eq!(name.len(), 255);
        assert!(name.ends_with(&format!("t-10.{}-delete", "ab".repeat(16))));
        check_name(
            &name,
            Some((&name[..name.len() - 43], 10, PartitionDirectoryKind::Deleted)),
        );
    }

    /// No broker creates such a topic.
    #[test]
    fn a_name_that_is_not_ascii_is_shortened_between_its_characters() {
        for partition in [1, 10] {
            let name = deleted_directory_name(&"ä".repeat(130), partition, Uuid([0xab; 16]));
            assert!((254..=255).contains(&name.len()), "{name}");
            assert!(name.starts_with('ä') && name.ends_with("-delete"), "{name}");
        }
    }

    const PARTITION: &str = "data/orders-0.x-delete";

    fn disk_with_files() -> MemoryDisk {
        let disk = MemoryDisk::new(1);
        let partition = Path::new(PARTITION);
        disk.create_directories(partition).expect("created");
        for name in ["a", "b"] {
            disk.open(&partition.join(name), OpenMode::Create)
                .expect("created");
        }
        disk
    }

    #[test]
    fn a_partitions_directory_is_removed_with_its_files_and_again() {
        let disk = disk_with_files();
        for _ in 0..2 {
            remove_partition_directory(&disk, Path::new(PARTITION)).expect("removed");
            assert!(!disk.exists(Path::new(PARTITION)));
        }
    }

    #[test]
    fn a_directory_that_cannot_be_removed_is_an_error_that_names_the_file() {
        let failure = |disk: &MemoryDisk| {
            let result = remove_partition_directory(disk, Path::new(PARTITION));
            result.expect_err("it fails").to_string()
        };
        let of_lack = |grants| {
            let disk = disk_with_files();
            disk.begin_shortage(grants, 1);
            failure(&disk)
        };
        assert!(
            of_lack(0).contains(&format!("list {PARTITION}")),
            "{}",
            of_lack(0)
        );
        assert!(of_lack(2).contains(&format!("{PARTITION}/b")), "{}", of_lack(2));
        let disk = disk_with_files();
        disk.cut_power_at(disk.operations() + 3);
        assert!(failure(&disk).contains(&format!("remove {PARTITION}")));
    }

    #[test]
    fn the_newest_leader_epoch_is_read_from_its_file() {
        let disk = disk_with_files();
        let newest = || last_leader_epoch(&disk, Path::new(PARTITION)).expect("readable");
        assert_eq!(newest(), None);
        let path = Path::new(PARTITION).join(crate::LEADER_EPOCH_FILE);
        disk.write_file(&path, b"0\n2\n3 0\n5 120\n");
        assert_eq!(newest(), Some(5));
        disk.write_file(&path, b"0\n3\n3 0\n5 120\n");
        assert_eq!(newest(), None, "an entry is missing");
    }

    #[test]
    fn topic_names_cannot_leave_the_directory() {
        for name in ["a", "A.b_c-9", &"x".repeat(249)] {
            assert!(is_topic_name(name), "{name}");
        }
        for name in ["", ".", "..", "../x", "a/b", "a b", "ä", "a\0", &"x".repeat(250)] {
            assert!(!is_topic_name(name), "{name}");
        }
    }

    #[test]
    fn meta_properties_round_trip_and_javas_format_is_read() {
        let properties = MetaProperties {
            cluster_id: "abc".to_string(),
            node_id: 1,
            directory_id: Some(Uuid([7; 16])),
        };
        assert_eq!(MetaProperties::parse(&properties.to_string()), Ok(properties));
        let java = "#\n#Sat Nov 21 03:00:00 UTC 2026\ncluster.id=x\nnode.id=3\nversion=1\n";
        let parsed = MetaProperties::parse(java).expect("Kafka's form");
        assert_eq!(
            (parsed.cluster_id.as_str(), parsed.node_id, parsed.directory_id),
            ("x", 3, None)
        );
        assert!(MetaProperties::parse("version=0\nbroker.id=1\n").is_err());
        assert!(MetaProperties::parse("cluster.id=x\nversion=1\n").is_err());
        let java = format!("{java}directory.id=wrong\n");
        let problem =
            MetaProperties::parse(&java).expect_err("an id that cannot be read is not an absent one");
        assert!(problem.contains("'wrong'"), "{problem}");
    }
}
