//! What to run: topics, clients, links, sweeps and expectations, in a small YAML file.
//!
//! `parse` reads a file and refuses what cannot be run; `sweep` turns it into points; `catalog` has
//! the scenarios that come with Ottla. Workloads of other tools are converted in `foreign`.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod catalog;
pub mod foreign;
pub mod parse;
mod check;
pub mod sweep;
pub mod path;
pub mod model;
pub mod words;
pub mod expect;
pub mod error;
mod yaml;
