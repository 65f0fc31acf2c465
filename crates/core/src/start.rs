//! The order in which a node takes over its directories: look, judge, and only then change.
//!
//! A refused start leaves every byte as it was: the next start, or Apache Kafka, must find
//! everything that was there to be found. A start that fails for lack of space before it opens a
//! partition puts back the mark of a clean stop, so that the logs still count as complete.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ottla_log::LogError;
use ottla_log::directory::LOCK_FILE;
use ottla_log::disk::{DirectoryLock, Disk};

use crate::config::NodeConfig;
use crate::controller::directories::Directories;
use crate::controller::survey::Survey;
use crate::controller::{Controller, ControllerError};
use crate::log_directory::{LogDirectory, RemovedTopics};
use crate::random::Random;
use crate::security;
use crate::time::Timestamp;

/// Why a broker could not start, or did not stop cleanly.
#[derive(Clone, Debug)]
pub enum StartError {
    Controller(ControllerError),
    Log(LogError),
    /// Another process uses the directory, or it cannot be written to.
    Lock {
        path: String,
        problem: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Controller(error) => error.fmt(f),
            StartError::Log(error) => error.fmt(f),
            StartError::Lock { path, problem } => write!(f, "cannot use {path}: {problem}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ControllerError> for StartError {
    fn from(error: ControllerError) -> StartError {
        StartError::Controller(error)
    }
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> StartError {
        StartError::Log(error)
    }
}

/// What a node is built on: leadership of the metadata log, and a directory of its own.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub controller: Controller,
    pub log_directory: LogDirectory,
    /// Deleted topics, as far back as the metadata log reaches.
    pub removed_topics: RemovedTopics,
}

/// Takes over the directories and claims empty ones. Waits for the disk.
///
/// - Errors: nothing was changed unless the disk failed.
pub(crate) fn take_over(
    disk: &Arc<dyn Disk>,
    config: &Arc<NodeConfig>,
    random: &Arc<Random>,
    now: Timestamp,
) -> Result<TakenOver, ControllerError> {
    for path in config.log_directories.iter().chain([&config.metadata_directory]) {
        disk.create_directories(path)
            .map_err(|source| LogError::io("create", path, source))?;
    }
    let (directories, claims) = Directories::read(&**disk, config, random)?;
    let log_path = &directories.log_directories[0].path;
    let mut log_directory = LogDirectory::read(disk.clone(), log_path, config.recovery.clone())?;
    let survey = Survey::read(&**disk, &directories.metadata.path, &log_directory, config)?;
    survey.check_single_node(&directories, config.node_id)?;
    security::check(survey.image(), config).map_err(ControllerError::Security)?;
    let removed_topics = survey.removed_topics();
    let last_broker = survey.image().brokers.get(&config.node_id);
    let last_broker_epoch = last_broker.map_or(-1, |broker| broker.broker_epoch);

    // From here on only single partitions are refused. The owner's name is written first: if a
    // crash interrupts what follows, the next start completes it.
    claims.iter().try_for_each(|claim| claim.make(&**disk))?;
    let mut controller = Controller::open(
        disk.clone(),
        config.clone(),
        directories,
        random.clone(),
        survey,
        now,
    )?;
    log_directory.take_over(last_broker_epoch)?;
    if let Err(error) = controller.activate(now) {
        // No partition was touched. The mark speaks of the metadata log, too.
        if controller.has_whole_log() {
            log_directory.put_back_mark();
        }
        return Err(error);
    }
    log_directory.remove_mark();
    log_directory.remove_deleted()?;
    Ok(TakenOver {
        controller,
        log_directory,
        removed_topics,
    })
}

/// Locks the directories against other processes.
pub(crate) fn lock_directories(
    disk: &dyn Disk,
    config: &NodeConfig,
) -> Result<Vec<Box<dyn DirectoryLock>>, StartError> {
    let mut paths: Vec<&Path> = config.log_directories.iter().map(|path| &**path).collect();
    if !paths.contains(&&*config.metadata_directory) {
        paths.push(&config.metadata_directory);
    }
    let mut locks = Vec::with_capacity(paths.len());
    for path in paths {
        let lock = disk
            .create_directories(path)
            .and_then(|()| disk.lock(&path.join(LOCK_FILE)));
        locks.push(lock.map_err(|error| StartError::Lock {
            path: path.display().to_string(),
            problem: match error.kind() {
                std::io::ErrorKind::ResourceBusy => "another process uses it".to_owned(),
                _ => error.to_string(),
            },
        })?);
    }
    Ok(locks)
}
