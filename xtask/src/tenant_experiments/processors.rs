//! Assignment of programs to processors: on one machine a noisy neighbour's clients take CPU time
//! from the broker, which they would not do over a network.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

const FILE: &str = "processors.json";

/// Processor numbers. Equal lists: every program runs on all processors.
#[derive(Debug)]
pub struct Processors {
    pub brokers: Vec<usize>,
    pub clients: Vec<usize>,
}

impl Processors {
    /// - `is_pinned`: brokers get the first half of the available processors, clients the rest.
    /// - Errors: there is only one processor.
    pub fn plan(is_pinned: bool) -> Result<Processors> {
        let allowed = sched_getaffinity(None).context("asking for our processors")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|number| allowed.is_set(*number))
            .collect();
        if !is_pinned {
            return Ok(Processors {
                brokers: all.clone(),
                clients: all,
            });
        }
        ensure!(
            all.len() > 1,
            "--pin needs two processors, and we may use {}",
            all.len()
        );
        let (brokers, clients) = all.split_at(all.len() / 2);
        Ok(Processors {
            brokers: brokers.to_vec(),
            clients: clients.to_vec(),
        })
    }

    pub fn is_pinned(&self) -> bool {
        self.brokers != self.clients
    }

    /// Programs that this thread starts from now on run on the brokers' processors.
    pub fn for_brokers(&self) -> Result<()> {
        confine(&self.brokers)
    }

    /// Programs that this thread starts from now on run on the clients' processors.
    pub fn for_clients(&self) -> Result<()> {
        confine(&self.clients)
    }

    /// Programs that this thread starts from now on run on any of them.
    pub fn for_all(&self) -> Result<()> {
        confine(&[&self.brokers[..], &self.clients[..]].concat())
    }

    /// Writes the assignment beside the reports of a run.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        let text = json!({"brokers": self.brokers, "clients": self.clients}).to_string();
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    pub fn read(directory: &Path) -> Result<Processors> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let told: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
        let numbers = |key: &str| -> Result<Vec<usize>> {
            let list = told[key].as_array();
            let list = list.with_context(|| format!("{} has no list of {key}", path.display()))?;
            let numbers = list
                .iter()
                .filter_map(|number| usize::try_from(number.as_u64()?).ok());
            Ok(numbers.collect())
        };
        Ok(Processors {
            brokers: numbers("brokers")?,
            clients: numbers("clients")?,
        })
    }
}

fn confine(numbers: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    numbers.iter().for_each(|number| set.set(*number));
    sched_setaffinity(None, &set).with_context(|| format!("running on processors {numbers:?} only"))
}
