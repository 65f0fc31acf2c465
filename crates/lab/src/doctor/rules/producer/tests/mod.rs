//! The sources' tables as data: numbers in, verdict out, with what must be refused and what may be promised.

mod rows;
mod kontur;
mod article;
mod reports;
mod own;
mod fixtures;
mod evidence;
mod properties;
