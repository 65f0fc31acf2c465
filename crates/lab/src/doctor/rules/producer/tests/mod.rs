//! The sources' tables as data: numbers in, verdict out, with the required refusals and the
//! permitted promises.

pub(crate) mod rows;
mod kontur;
mod article;
mod reports;
mod own;
mod fixtures;
mod evidence;
mod properties;
