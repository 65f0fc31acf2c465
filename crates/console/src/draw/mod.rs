//! Parts of pages: sentences, blocks, tables, bars and lines.
//!
//! Reading order: the modules below, top to bottom.

pub mod text;
pub mod block;
pub mod table;
pub mod parts;
pub mod bar;
pub mod area;
pub mod line;
