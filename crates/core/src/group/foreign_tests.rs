//! Operations on a group of another protocol: answered as Apache Kafka 4.3 answers, as far as the
//! records tell.

use ottla_wire::error_code::ErrorCode;

use super::foreign::ForeignKind;
use super::record::GroupRecord;
use super::reply::GroupReply;
use super::request::{GroupRequest, ListRequest, OffsetDeleteRequest, OffsetDeleteTopic};
use super::tests::{Bench, GROUP, NOBODY, member};

const SHARE: &[u8] = &[11, 12, 15];
const STREAMS: &[u8] = &[17, 20, 23];

/// A group with records of these types, as after a replay.
fn holding(types: &[u8]) -> Bench {
    let mut bench = Bench::new();
    for record_type in types {
        bench.log.push(GroupRecord::Foreign {
            group: GROUP.into(),
            key: vec![0, *record_type, 0, 1, b'g'],
            is_present: true,
        });
    }
    bench.replay();
    bench
}

fn delete_offset(bench: &mut Bench) -> ErrorCode {
    let request = OffsetDeleteRequest {
        group_id: GROUP,
        topics: vec![OffsetDeleteTopic {
            name: "t",
            partitions: vec![(0, ErrorCode::None)],
        }],
    };
    match bench.ask(GroupRequest::OffsetDelete(request)) {
        GroupReply::OffsetDelete(reply) if reply.error == ErrorCode::None => reply.topics[0].1[0].1,
        GroupReply::OffsetDelete(reply) => reply.error,
        other => panic!("{other:?}"),
    }
}

/// Checks the answers to a commit by hand, a deletion of offsets, and a deletion of the group; and
/// that refusals write nothing.
#[track_caller]
fn check(types: &[&[u8]], wait_ms: i32, expected: [ErrorCode; 3]) {
    let mut bench = holding(&types.concat());
    bench.pass(wait_ms);
    let before = bench.log.len();
    let commit = bench.commit(NOBODY, "t", 5);
    let answers = [commit, delete_offset(&mut bench), bench.delete()];
    assert_eq!(answers, expected, "{types:?} after {wait_ms} ms");
    if expected.iter().all(|error| *error != ErrorCode::None) {
        assert_eq!(bench.log.len(), before);
    }
}

#[test]
fn a_group_with_members_of_another_protocol_is_not_changed() {
    use ErrorCode::{GroupIdNotFound, GroupSubscribedToTopic, NonEmptyGroup, UnknownMemberId};
    let claimed = [UnknownMemberId, GroupSubscribedToTopic, NonEmptyGroup];
    check(&[STREAMS, &[19]], 0, claimed);
    check(
        &[SHARE, &[10]],
        0,
        [GroupIdNotFound, GroupIdNotFound, NonEmptyGroup],
    );
    // They cannot rejoin with another protocol, so silence does not mean that they are gone.
    check(&[STREAMS, &[19]], 45_000, claimed);
    check(
        &[SHARE, &[10]],
        45_000,
        [GroupIdNotFound, GroupIdNotFound, NonEmptyGroup],
    );
}

#[test]
fn an_empty_group_can_be_changed_unless_it_is_a_share_group() {
    use ErrorCode::{GroupIdNotFound, None, UnsupportedVersion};
    check(&[STREAMS], 0, [None; 3]);
    check(
        &[SHARE],
        0,
        [GroupIdNotFound, GroupIdNotFound, UnsupportedVersion],
    );
}

#[test]
fn a_share_group_is_never_converted_and_an_empty_streams_group_is() {
    let inconsistent = ErrorCode::InconsistentGroupProtocol;
    for types in [SHARE, &[11, 10], &[17, 19]] {
        let mut bench = holding(types);
        bench.pass(45_000);
        assert_eq!(bench.join_error(&member()), inconsistent, "{types:?}");
    }
    let mut bench = holding(STREAMS);
    bench.stable(&[member()]);
    bench.replay();
    assert!(bench.machine.group(GROUP).unwrap().foreign.is_empty());
}

#[test]
fn a_foreign_group_is_listed_with_its_kind_and_described_as_kept() {
    for (types, state, kind) in [
        (SHARE, "Empty", ForeignKind::Share),
        (&[11, 10], "Unknown", ForeignKind::Share),
        (STREAMS, "Empty", ForeignKind::Streams),
        (&[17, 19], "Unknown", ForeignKind::Streams),
    ] {
        let mut bench = holding(types);
        let GroupReply::List(groups) = bench.ask(GroupRequest::List(ListRequest::default())) else {
            panic!()
        };
        assert_eq!((groups[0].state, groups[0].group_type), (state, kind.name()));
        let GroupReply::Describe(described) = bench.ask(GroupRequest::Describe(vec![GROUP])) else {
            panic!()
        };
        assert_eq!(described[0].error, ErrorCode::GroupIdNotFound);
        assert_eq!(described[0].kept_as, Some(kind));
    }
}
