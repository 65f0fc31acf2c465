//! Whose log directories these are: `meta.properties`, written when a directory is used for the first time.

use std::path::{Path, PathBuf};

use ottla_log::directory::MetaProperties;
use ottla_log::disk::Disk;
use ottla_log::{LogError, checkpoint};
use ottla_wire::primitives::Uuid;

use super::ControllerError;
use super::metadata_log::METADATA_DIRECTORY;
use crate::config::NodeConfig;
use crate::random::Random;

/// The log directories of this node, all belonging to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    pub cluster_id: String,
    /// In the order of `log.dirs`.
    pub log_directories: Vec<IdentifiedDirectory>,
    /// The one with the metadata log.
    pub metadata: IdentifiedDirectory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifiedDirectory {
    pub path: PathBuf,
    pub id: Uuid,
}

impl Directories {
    /// Reads who owns the directories, and claims those that nobody owns yet.
    ///
    /// - Errors: a directory of another node or cluster, or one that holds data without saying whose.
    pub fn open(
        disk: &dyn Disk,
        config: &NodeConfig,
        random: &Random,
    ) -> Result<Directories, ControllerError> {
        let mut paths = config.log_directories.clone();
        if !paths.contains(&config.metadata_directory) {
            paths.push(config.metadata_directory.clone());
        }
        let mut found = Vec::with_capacity(paths.len());
        for path in &paths {
            disk.create_directories(path)
                .map_err(|source| io_error("create", path, source))?;
            found.push(MetaProperties::read(disk, path)?);
        }
        let cluster_id = found
            .iter()
            .flatten()
            .map(|meta| meta.cluster_id.clone())
            .next()
            .unwrap_or_else(|| random.uuid().to_string());
        let mut identified = Vec::with_capacity(paths.len());
        for (path, meta) in paths.iter().zip(found) {
            let id = match meta {
                Some(meta) => owned(disk, path, &meta, &cluster_id, config.node_id, random)?,
                None => claim(disk, path, &cluster_id, config.node_id, random)?,
            };
            if identified
                .iter()
                .any(|other: &IdentifiedDirectory| other.id == id)
            {
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
        Ok(Directories {
            cluster_id,
            log_directories: identified,
            metadata,
        })
    }

    pub fn path(&self, id: Uuid) -> Option<&Path> {
        self.log_directories
            .iter()
            .find(|directory| directory.id == id)
            .map(|directory| &*directory.path)
    }
}

fn owned(
    disk: &dyn Disk,
    path: &Path,
    meta: &MetaProperties,
    cluster_id: &str,
    node_id: i32,
    random: &Random,
) -> Result<Uuid, ControllerError> {
    let refuse = |problem| {
        Err(ControllerError::Directory {
            path: path.to_path_buf(),
            problem,
        })
    };
    if meta.node_id != node_id {
        return refuse(format!(
            "belongs to node {}, this is node {node_id}: set node.id={}",
            meta.node_id, meta.node_id
        ));
    }
    if meta.cluster_id != cluster_id {
        return refuse(format!(
            "belongs to cluster {}, another log directory to {cluster_id}",
            meta.cluster_id
        ));
    }
    if let Some(id) = meta.directory_id {
        return Ok(id);
    }
    // Directories that began their life before Kafka 3.7.
    let id = random.uuid();
    MetaProperties {
        directory_id: Some(id),
        ..meta.clone()
    }
    .write(disk, path)?;
    Ok(id)
}

// The owner's name is the first thing in a directory: what a crash leaves behind it is completed at the next start.
fn claim(
    disk: &dyn Disk,
    path: &Path,
    cluster_id: &str,
    node_id: i32,
    random: &Random,
) -> Result<Uuid, ControllerError> {
    if disk.exists(&path.join(METADATA_DIRECTORY)) || disk.exists(&path.join(checkpoint::HIGH_WATERMARK_FILE))
    {
        return Err(ControllerError::Directory {
            path: path.to_path_buf(),
            problem: "holds data, but no meta.properties that says whose".to_owned(),
        });
    }
    let id = random.uuid();
    MetaProperties {
        cluster_id: cluster_id.to_owned(),
        node_id,
        directory_id: Some(id),
    }
    .write(disk, path)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_directory(parent)
            .map_err(|source| io_error("sync", parent, source))?;
    }
    Ok(id)
}

pub(super) fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> ControllerError {
    ControllerError::Log(LogError::Io {
        doing,
        path: path.to_path_buf(),
        source: source.into(),
    })
}
