//! What to run: topics, clients, links, sweeps and expectations, in a small YAML file.
//!
//! `parse` reads a file and refuses what cannot be run; `sweep` turns it into points; `catalog` has
//! the scenarios that come with Ottla. Workloads of other tools are converted in `openmessaging`
//! and `trogdor`.

pub mod model;
pub mod error;
mod yaml;
pub mod parse;
mod check;
pub mod words;
pub mod path;
pub mod sweep;
pub mod expect;
pub mod catalog;
pub mod foreign;
mod openmessaging;
mod trogdor;
