//! A scenario's run: set up, calibrate, warm up, measure, check, predict, judge, answer.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod run;
pub mod measure;
pub mod prepare;
pub mod groups;
pub mod disk;
pub mod target;
pub mod predict;
pub mod answer;
pub mod validity;
pub mod figures;
pub mod integrity;
pub mod drift;
mod group_result;
pub mod stages;
pub mod compare;
pub mod report_file;
pub mod html;
pub mod broker_log;
pub mod sample;
pub mod shown;
pub mod error;
