//! Ownership of log directories: `meta.properties`, written when a directory is first used.

use std::path::{Path, PathBuf};

use ottla_log::directory::{META_PROPERTIES_FILE, MetaProperties, PartitionDirectory};
use ottla_log::disk::{DirectoryEntry, Disk};
use ottla_log::{LogError, checkpoint};
use ottla_wire::primitives::Uuid;

use super::ControllerError;
use crate::config::NodeConfig;
use crate::random::Random;

/// The log directories of this node, all of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    pub cluster_id: String,
    /// In the order of `log.dirs`.
    pub log_directories: Vec<IdentifiedDirectory>,
    /// The directory with the metadata log.
    pub metadata: IdentifiedDirectory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifiedDirectory {
    pub path: PathBuf,
    pub id: Uuid,
}

impl Directories {
    /// Reads the owners of the directories. Returns claims for those without an owner.
    ///
    /// - Errors: a directory of another node or cluster, or one that holds data but no owner.
    pub fn read(
        disk: &dyn Disk,
        config: &NodeConfig,
        random: &Random,
    ) -> Result<(Directories, Vec<Claim>), ControllerError> {
        let mut paths = config.log_directories.clone();
        if !paths.contains(&config.metadata_directory) {
            paths.push(config.metadata_directory.clone());
        }
        let mut found = Vec::with_capacity(paths.len());
        for path in &paths {
            found.push(MetaProperties::read(disk, path)?);
        }
        let cluster_id = found
            .iter()
            .flatten()
            .map(|meta| meta.cluster_id.clone())
            .next()
            .unwrap_or_else(|| random.uuid().to_string());
        let mut identified: Vec<IdentifiedDirectory> = Vec::with_capacity(paths.len());
        let mut claims = Vec::new();
        for (path, meta) in paths.iter().zip(found) {
            let known_id = match &meta {
                Some(meta) => owned(path, meta, &cluster_id, config.node_id)?,
                None => unowned(disk, path).map(|()| None)?,
            };
            let id = known_id.unwrap_or_else(|| random.uuid());
            if known_id.is_none() {
                claims.push(Claim {
                    path: path.clone(),
                    meta: MetaProperties {
                        cluster_id: cluster_id.clone(),
                        node_id: config.node_id,
                        directory_id: Some(id),
                    },
                });
            }
            if identified.iter().any(|other| other.id == id) {
                return Err(ControllerError::Directory {
                    path: path.clone(),
                    problem: format!("has directory.id {id}, which another log directory has, too"),
                });
            }
            identified.push(IdentifiedDirectory {
                path: path.clone(),
                id,
            });
        }
        let metadata = identified
            .iter()
            .find(|directory| directory.path == config.metadata_directory)
            .expect("the metadata directory is among them")
            .clone();
        identified.truncate(config.log_directories.len());
        let directories = Directories {
            cluster_id,
            log_directories: identified,
            metadata,
        };
        Ok((directories, claims))
    }

    pub fn path(&self, id: Uuid) -> Option<&Path> {
        self.log_directories
            .iter()
            .find(|directory| directory.id == id)
            .map(|directory| &*directory.path)
    }
}

/// A directory that this node is to own, or whose `meta.properties` has no id (Kafka before 3.7).
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    meta: MetaProperties,
}

impl Claim {
    // The owner is the first file in a directory: if a crash interrupts what follows, the next
    // start completes it.
    pub fn make(&self, disk: &dyn Disk) -> Result<(), ControllerError> {
        self.meta.write(disk, &self.path)?;
        if let Some(parent) = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            disk.sync_directory(parent)
                .map_err(|source| io_error("sync", parent, source))?;
        }
        Ok(())
    }
}

/// Returns the directory's id, if it has an owner and an id.
fn owned(
    path: &Path,
    meta: &MetaProperties,
    cluster_id: &str,
    node_id: i32,
) -> Result<Option<Uuid>, ControllerError> {
    if meta.node_id != node_id {
        let problem = format!(
            "it belongs to node {}, this is node {node_id}: set node.id={}",
            meta.node_id, meta.node_id
        );
        return Err(not_the_owner(path, &problem));
    }
    if meta.cluster_id != cluster_id {
        let problem = format!(
            "it belongs to cluster {}, another log directory to {cluster_id}",
            meta.cluster_id
        );
        return Err(not_the_owner(path, &problem));
    }
    Ok(meta.directory_id)
}

/// `meta.properties` contradicts what else is known. It is a whole that is written at once.
pub(super) fn not_the_owner(log_directory: &Path, problem: &str) -> ControllerError {
    ControllerError::Directory {
        path: log_directory.join(META_PROPERTIES_FILE),
        problem: format!("does not fit at position 0: {problem}"),
    }
}

/// Refuses a directory without an owner unless it is empty.
fn unowned(disk: &dyn Disk, path: &Path) -> Result<(), ControllerError> {
    let entries = disk.list(path).map_err(|source| io_error("list", path, source))?;
    let name = |entry: &DirectoryEntry| Some(entry.path.file_name()?.to_str()?.to_owned());
    let speaks_of_data =
        |name: &String| PartitionDirectory::parse(name).is_some() || name == checkpoint::HIGH_WATERMARK_FILE;
    match entries.iter().filter_map(name).find(speaks_of_data) {
        Some(data) => Err(ControllerError::Directory {
            path: path.join(META_PROPERTIES_FILE),
            problem: format!(
                "is missing, although there is {data} beside it: the owner of this data is unknown"
            ),
        }),
        None => Ok(()),
    }
}

pub(crate) fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> ControllerError {
    ControllerError::Log(LogError::Io {
        doing,
        path: path.to_path_buf(),
        source: source.into(),
    })
}
