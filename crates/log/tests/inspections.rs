//! The batches of a directory as an inspection sees them, without opening it as a log.

mod support;

use std::ops::ControlFlow;
use std::path::Path;

use ottla_log::LogError;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::inspection::{Damage, Extent, Inspected, inspect};
use support::batches::*;
use support::numbered::*;

/// Returns the base offsets of the batches, and the damage between them.
fn inspected(disk: &MemoryDisk, from: i64) -> (Vec<i64>, Vec<Damage>, Extent) {
    let (mut batches, mut damages) = (Vec::new(), Vec::new());
    let extent = inspect(disk, Path::new(DIRECTORY), from, |inspected| {
        match inspected {
            Inspected::Batch { batch, .. } => batches.push(batch.header.base_offset),
            Inspected::Damage(damage) => damages.push(damage),
        }
        Ok::<_, LogError>(ControlFlow::Continue(()))
    });
    (batches, damages, extent.expect("readable"))
}

#[test]
fn an_inspection_begins_with_the_segment_that_holds_its_offset() {
    let disk = closed(300);
    let bases = bases(&disk);
    assert_eq!(bases.len(), 3);
    for (from, first) in [
        (0, 0),
        (bases[1] - 1, 0),
        (bases[1], bases[1]),
        (bases[1] + 1, bases[1]),
        (bases[2], bases[2]),
        (1_000, bases[2]),
    ] {
        let (batches, damages, extent) = inspected(&disk, from);
        assert_eq!(batches, (first..300).collect::<Vec<i64>>());
        assert_eq!(damages, Vec::new());
        assert_eq!((extent.start_offset, extent.end_offset), (Some(0), from.max(300)));
    }
}

/// Damages the last batch of a segment.
fn damage_end(disk: &MemoryDisk, segment: usize) {
    let path = &files(disk, ".log")[segment];
    let bytes = disk.read_file(path).expect("there");
    disk.corrupt(path, bytes.len() as u64 - 100, 1);
}

#[test]
fn behind_damage_at_the_end_of_a_segment_the_next_one_that_holds_something_follows() {
    let disk = closed(300);
    let bases = bases(&disk);
    damage_end(&disk, 0);
    let next_of_first = |disk: &MemoryDisk| {
        let (_, damages, _) = inspected(disk, 0);
        assert_eq!(damages[0].offset, bases[1] - 1);
        damages[0].next_offset
    };
    assert_eq!(next_of_first(&disk), Some(bases[1]));
    let paths = files(&disk, ".log");
    disk.write_file(&paths[1], b"");
    assert_eq!(next_of_first(&disk), Some(bases[2]));
    disk.write_file(&paths[2], b"");
    assert_eq!(next_of_first(&disk), None);
}
