//! What is to be run: topics, clients, links, sweeps and what must hold, in a small YAML file.

pub mod model;
