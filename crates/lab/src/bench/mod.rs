//! A scenario's run: set up, calibrate, warm up, measure, check, predict, judge.

pub mod error;
pub mod target;
pub mod groups;
mod group_result;
pub mod measure;
pub mod figures;
pub mod integrity;
pub mod drift;
pub mod predict;
pub mod prepare;
pub mod disk;
pub mod validity;
pub mod broker_log;
pub mod stages;
pub mod shown;
pub mod compare;
pub mod report_file;
pub mod run;
pub mod html;
pub mod sample;
