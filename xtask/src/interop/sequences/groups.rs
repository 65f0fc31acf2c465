//! One group: members of both protocols that come, go and change, and what tools ask about it.

use std::sync::LazyLock;

use anyhow::Result;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use ottla_wire::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
};
use ottla_wire::messages::delete_groups::DeleteGroupsRequest;
use ottla_wire::messages::describe_groups::DescribeGroupsRequest;
use ottla_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_wire::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity};
use ottla_wire::messages::list_groups::ListGroupsRequest;
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use ottla_wire::primitives::Reader;
use ottla_wire::random::Random;
use regex::Regex;

use super::membership::{Epoch, Member, Owned, assigned, assignment, by_topic, subscription, topics};
use super::play::World;
use super::{Scene, TOPICS};
use crate::interop::refusals::{Ask, Outcome, Said};

const MEMBERS: usize = 4;
/// Longer than any sequence.
const TIMEOUT_MS: i32 = 60_000;
const REGEXES: [&str; 4] = ["a.*", "alpha|gamma", "nothing", "("];

#[derive(Clone, Debug)]
pub enum Step {
    Beat(Beat),
    Join {
        member: usize,
        version: i16,
        is_static: bool,
        topics: u8,
        has_owned: bool,
        protocols: &'static [&'static str],
    },
    Sync {
        member: usize,
        generation: Epoch,
    },
    Heartbeat {
        member: usize,
        generation: Epoch,
        is_static: bool,
    },
    /// One member: for several Ottla raises the group epoch once for each, Apache Kafka once.
    Leave {
        member: usize,
        is_static: bool,
    },
    Commit {
        member: Option<usize>,
        is_classic: bool,
        version: i16,
        epoch: Epoch,
        topic: usize,
        partition: i32,
    },
    Fetch {
        member: Option<usize>,
        is_classic: bool,
        epoch: Epoch,
    },
    Describe {
        version: i16,
    },
    ConsumerDescribe,
    List,
    Delete,
    OffsetDelete {
        topic: usize,
    },
}

/// ConsumerGroupHeartbeat.
#[derive(Clone, Debug)]
pub struct Beat {
    member: usize,
    version: i16,
    epoch: Epoch,
    topics: Option<u8>,
    regex: Option<&'static str>,
    owned: Owned,
    has_timeout: bool,
    is_static: bool,
    assignor: Option<&'static str>,
}

pub struct GroupWorld {
    group: String,
    scene: Scene,
    members: Vec<Member>,
    /// Ids that the broker has drawn, and their names.
    drawn: Vec<(String, String)>,
}

impl World for GroupWorld {
    const NAME: &'static str = "groups";
    const SETTLED_TIMES: u32 = 6;
    type Step = Step;

    fn sequence(random: &mut Random) -> Vec<Step> {
        let chance = |random: &mut Random, percent: u64| random.below(100) < percent;
        let classic_percent = [0, 50, 100][random.below(3) as usize];
        let static_percent = [0, 0, 50][random.below(3) as usize];
        let wrong_percent = [5, 25][random.below(2) as usize];
        let mut habits = Vec::new();
        for _ in 0..MEMBERS {
            habits.push((chance(random, classic_percent), chance(random, static_percent)));
        }
        let length = 12 + random.below(24);
        let mut steps = Vec::new();
        for _ in 0..length {
            let member = random.below(MEMBERS as u64) as usize;
            let (mut is_classic, is_static) = habits[member];
            if chance(random, 5) {
                is_classic = !is_classic;
                habits[member].0 = is_classic;
            }
            let is_wrong = chance(random, wrong_percent);
            steps.push(match random.below(100) {
                0..=64 if is_classic => classic_step(random, member, is_static, is_wrong),
                0..=64 => Step::Beat(beat(random, member, is_static, is_wrong)),
                65..=74 => commit(random, member, is_classic, is_wrong),
                75..=80 => Step::Fetch {
                    member: (random.below(2) > 0).then_some(member),
                    is_classic,
                    epoch: epoch(random, is_wrong),
                },
                81..=90 => Step::ConsumerDescribe,
                91..=94 => Step::Describe {
                    version: 5 + random.below(2) as i16,
                },
                95..=96 => Step::List,
                97 => Step::Delete,
                _ => Step::OffsetDelete {
                    topic: random.below(TOPICS.len() as u64) as usize,
                },
            });
        }
        steps
    }

    fn new(name: &str, scene: &Scene, _ports: [u16; 2]) -> Result<GroupWorld> {
        Ok(GroupWorld {
            group: name.to_owned(),
            scene: scene.clone(),
            members: (0..MEMBERS).map(|number| Member::new(name, number)).collect(),
            drawn: Vec::new(),
        })
    }

    fn lanes() -> usize {
        // The last is a tool's.
        MEMBERS + 1
    }

    fn lane(step: &Step) -> usize {
        match step {
            Step::Beat(beat) => beat.member,
            Step::Leave { member, .. }
            | Step::Join { member, .. }
            | Step::Sync { member, .. }
            | Step::Heartbeat { member, .. } => *member,
            Step::Commit { member, .. } | Step::Fetch { member, .. } => member.unwrap_or(MEMBERS),
            _ => MEMBERS,
        }
    }

    fn may_wait(step: &Step) -> bool {
        matches!(step, Step::Join { .. } | Step::Sync { .. })
    }

    fn ask(&self, step: &Step) -> Ask {
        let mut body = Vec::new();
        let (api_key, version) = self.encode(step, &mut body);
        let client_id = format!("k{}", GroupWorld::lane(step));
        Ask::of(&client_id, api_key, version, body)
    }

    fn learn(&mut self, step: &Step, frame: &[u8]) -> Result<()> {
        let mut reader = Reader::new(frame);
        match step {
            Step::Beat(beat) => {
                decode_response_header(&mut reader, ApiKey::ConsumerGroupHeartbeat, beat.version)?;
                let response = ConsumerGroupHeartbeatResponse::decode(&mut reader, beat.version)?;
                let asked = self.members[beat.member].epoch(beat.epoch, false);
                self.members[beat.member].learn_heartbeat(&response, asked);
                self.draw(beat.member, response.member_id.unwrap_or_default());
            }
            Step::Join { member, version, .. } => {
                decode_response_header(&mut reader, ApiKey::JoinGroup, *version)?;
                let response = JoinGroupResponse::decode(&mut reader, *version)?;
                self.members[*member].learn_join(&response);
                self.draw(*member, response.member_id);
            }
            Step::Sync { member, .. } => {
                decode_response_header(&mut reader, ApiKey::SyncGroup, 5)?;
                let response = SyncGroupResponse::decode(&mut reader, 5)?;
                if response.error_code == 0 {
                    self.members[*member].assigned = assigned(response.assignment, &self.scene)?;
                }
                self.members[*member].learn_code(ErrorCode::from_i16(response.error_code));
            }
            Step::Heartbeat { member, .. } => {
                decode_response_header(&mut reader, ApiKey::Heartbeat, 4)?;
                let response = HeartbeatResponse::decode(&mut reader, 4)?;
                self.members[*member].learn_code(ErrorCode::from_i16(response.error_code));
            }
            Step::Leave { member, .. } => {
                decode_response_header(&mut reader, ApiKey::LeaveGroup, 5)?;
                let response = LeaveGroupResponse::decode(&mut reader, 5)?;
                if response.members.iter().all(|left| left.error_code == 0) {
                    self.members[*member].forget_classic();
                    self.members[*member].assigned.clear();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Apache Kafka resolves regular expressions behind its answer.
    fn settling(&self, step: &Step) -> Option<Ask> {
        let Step::Beat(beat) = step else {
            return None;
        };
        beat.regex?;
        Some(self.ask(&Step::ConsumerDescribe))
    }

    fn is_settled(&self, before: &str, now: &str) -> bool {
        before == now
    }

    fn is_repeated(step: &Step) -> bool {
        matches!(step, Step::Beat(beat) if beat.regex.is_some())
    }

    fn names(&self) -> Vec<(String, String)> {
        self.drawn.clone()
    }

    fn order(&self) -> Vec<String> {
        let mut drawn = self.drawn.clone();
        drawn.sort();
        drawn.into_iter().map(|(_, name)| name).collect()
    }

    fn excerpt(&self, step: &Step, ask: &Ask, outcome: &Outcome) -> Result<String> {
        static LISTED: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"ListedGroup \{[^{}]*\}").expect("the pattern is one"));
        let verbose = Said::of(ask, outcome.clone()).verbose;
        if !matches!(step, Step::List) {
            return Ok(verbose);
        }
        let ours = LISTED.find_iter(&verbose).map(|found| found.as_str());
        Ok(ours.filter(|listed| listed.contains(&self.group)).collect())
    }
}

impl GroupWorld {
    fn draw(&mut self, member: usize, id: &str) {
        let is_known = self.drawn.iter().any(|(known, _)| known == id);
        if !id.is_empty() && !id.starts_with('~') && !is_known {
            let times = self.drawn.len();
            self.drawn.push((id.to_owned(), format!("<m{member}.{times}>")));
        }
    }

    fn instance(member: usize, is_static: bool) -> Option<&'static str> {
        const INSTANCES: [&str; MEMBERS] = ["i0", "i1", "i2", "i3"];
        is_static.then(|| INSTANCES[member])
    }

    fn encode(&self, step: &Step, out: &mut Vec<u8>) -> (ApiKey, i16) {
        let group_id = self.group.as_str();
        match step {
            Step::Beat(beat) => self.encode_beat(beat, out),
            Step::Join {
                member,
                version,
                is_static,
                topics,
                has_owned,
                protocols,
            } => {
                let state = &self.members[*member];
                let owned: &[_] = if *has_owned { &state.assigned } else { &[] };
                let metadata = subscription(*topics, owned, &self.scene, state.generation);
                let request = JoinGroupRequest {
                    group_id,
                    session_timeout_ms: TIMEOUT_MS / 2,
                    rebalance_timeout_ms: TIMEOUT_MS,
                    member_id: &state.classic_id,
                    group_instance_id: GroupWorld::instance(*member, *is_static),
                    protocol_type: "consumer",
                    protocols: protocols
                        .iter()
                        .map(|name| JoinGroupRequestProtocol {
                            name,
                            metadata: &metadata,
                        })
                        .collect(),
                    reason: None,
                };
                request.encode(out, *version);
                (ApiKey::JoinGroup, *version)
            }
            Step::Sync { member, generation } => {
                let state = &self.members[*member];
                let shares: Vec<(&str, Vec<u8>)> = self.shares(*member);
                let request = SyncGroupRequest {
                    group_id,
                    generation_id: state.epoch(*generation, true),
                    member_id: &state.classic_id,
                    group_instance_id: None,
                    protocol_type: Some("consumer"),
                    protocol_name: Some(&state.protocol),
                    assignments: shares
                        .iter()
                        .map(|(member_id, assignment)| SyncGroupRequestAssignment {
                            member_id,
                            assignment,
                        })
                        .collect(),
                };
                request.encode(out, 5);
                (ApiKey::SyncGroup, 5)
            }
            Step::Heartbeat {
                member,
                generation,
                is_static,
            } => {
                let state = &self.members[*member];
                let request = HeartbeatRequest {
                    group_id,
                    generation_id: state.epoch(*generation, true),
                    member_id: &state.classic_id,
                    group_instance_id: GroupWorld::instance(*member, *is_static),
                };
                request.encode(out, 4);
                (ApiKey::Heartbeat, 4)
            }
            Step::Leave { member, is_static } => {
                let request = LeaveGroupRequest {
                    group_id,
                    member_id: "",
                    members: vec![MemberIdentity {
                        member_id: if *is_static {
                            ""
                        } else {
                            &self.members[*member].classic_id
                        },
                        group_instance_id: GroupWorld::instance(*member, *is_static),
                        reason: None,
                    }],
                };
                request.encode(out, 5);
                (ApiKey::LeaveGroup, 5)
            }
            _ => self.encode_of_tools(step, out),
        }
    }

    /// The leader gives each member one partition, in the order of the members' names.
    fn shares(&self, leader: usize) -> Vec<(&str, Vec<u8>)> {
        let led = &self.members[leader].led;
        let of = |member: &Member| led.contains(&member.classic_id);
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, member)| of(member))
            .map(|(number, member)| (member.classic_id.as_str(), assignment(number)))
            .collect()
    }

    fn encode_beat(&self, beat: &Beat, out: &mut Vec<u8>) -> (ApiKey, i16) {
        let member = &self.members[beat.member];
        let member_epoch = member.epoch(beat.epoch, false);
        // Who joins tells everything.
        let is_joining = member_epoch == 0;
        let owned = match beat.owned {
            Owned::Unchanged | Owned::Assigned if is_joining => Some(Vec::new()),
            owned => member.owned(owned, &self.scene),
        };
        let topics_told = match beat.topics {
            None if is_joining && beat.regex.is_none() => Some(1),
            told => told,
        };
        let request = ConsumerGroupHeartbeatRequest {
            group_id: &self.group,
            member_id: &member.consumer_id,
            member_epoch,
            instance_id: GroupWorld::instance(beat.member, beat.is_static),
            rack_id: None,
            rebalance_timeout_ms: if beat.has_timeout || is_joining {
                TIMEOUT_MS
            } else {
                -1
            },
            subscribed_topic_names: topics_told.map(topics),
            subscribed_topic_regex: beat.regex.filter(|_| beat.version > 0),
            server_assignor: beat.assignor,
            topic_partitions: owned.map(|owned| {
                let by_topic = by_topic(&owned).into_iter();
                by_topic
                    .map(
                        |(topic_id, partitions)| ConsumerGroupHeartbeatRequestTopicPartitions {
                            topic_id,
                            partitions,
                        },
                    )
                    .collect()
            }),
        };
        request.encode(out, beat.version);
        (ApiKey::ConsumerGroupHeartbeat, beat.version)
    }

    /// A member's id and epoch; a tool has none.
    fn identity(&self, member: Option<usize>, is_classic: bool, epoch: Epoch) -> (&str, i32) {
        let Some(member) = member else {
            return ("", -1);
        };
        let member = &self.members[member];
        let id = if is_classic {
            &member.classic_id
        } else {
            &member.consumer_id
        };
        (id, member.epoch(epoch, is_classic))
    }

    fn encode_of_tools(&self, step: &Step, out: &mut Vec<u8>) -> (ApiKey, i16) {
        let group_id = self.group.as_str();
        match step {
            Step::Commit {
                member,
                is_classic,
                version,
                epoch,
                topic,
                partition,
            } => {
                let (member_id, epoch) = self.identity(*member, *is_classic, *epoch);
                let request = OffsetCommitRequest {
                    group_id,
                    generation_id_or_member_epoch: epoch,
                    member_id,
                    topics: vec![OffsetCommitRequestTopic {
                        name: TOPICS[*topic].0,
                        topic_id: self.scene.topic_ids[*topic],
                        partitions: vec![OffsetCommitRequestPartition {
                            partition_index: *partition,
                            committed_offset: 10,
                            ..OffsetCommitRequestPartition::default()
                        }],
                    }],
                    ..OffsetCommitRequest::default()
                };
                request.encode(out, *version);
                (ApiKey::OffsetCommit, *version)
            }
            Step::Fetch {
                member,
                is_classic,
                epoch,
            } => {
                let (member_id, member_epoch) = self.identity(*member, *is_classic, *epoch);
                let request = OffsetFetchRequest {
                    groups: vec![OffsetFetchRequestGroup {
                        group_id,
                        member_id: member.map(|_| member_id),
                        member_epoch,
                        topics: Some(vec![OffsetFetchRequestTopics {
                            name: TOPICS[0].0,
                            partition_indexes: vec![0, 1, 2],
                            ..OffsetFetchRequestTopics::default()
                        }]),
                    }],
                    ..OffsetFetchRequest::default()
                };
                request.encode(out, 9);
                (ApiKey::OffsetFetch, 9)
            }
            Step::Describe { version } => {
                let request = DescribeGroupsRequest {
                    groups: vec![group_id],
                    include_authorized_operations: false,
                };
                request.encode(out, *version);
                (ApiKey::DescribeGroups, *version)
            }
            Step::ConsumerDescribe => {
                let request = ConsumerGroupDescribeRequest {
                    group_ids: vec![group_id],
                    include_authorized_operations: false,
                };
                request.encode(out, 1);
                (ApiKey::ConsumerGroupDescribe, 1)
            }
            Step::List => {
                ListGroupsRequest::default().encode(out, 5);
                (ApiKey::ListGroups, 5)
            }
            Step::Delete => {
                let request = DeleteGroupsRequest {
                    groups_names: vec![group_id],
                };
                request.encode(out, 2);
                (ApiKey::DeleteGroups, 2)
            }
            Step::OffsetDelete { topic } => {
                let request = OffsetDeleteRequest {
                    group_id,
                    topics: vec![OffsetDeleteRequestTopic {
                        name: TOPICS[*topic].0,
                        partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
                    }],
                };
                request.encode(out, 0);
                (ApiKey::OffsetDelete, 0)
            }
            members => unreachable!("{members:?} is not a tool's"),
        }
    }
}

fn epoch(random: &mut Random, is_wrong: bool) -> Epoch {
    if !is_wrong {
        return Epoch::Current;
    }
    match random.below(5) {
        0 => Epoch::Older,
        1 => Epoch::Newer,
        2 => Epoch::Is(99),
        3 => Epoch::Is(-3),
        _ => Epoch::Is(0),
    }
}

fn beat(random: &mut Random, member: usize, is_static: bool, is_wrong: bool) -> Beat {
    let mut beat = Beat {
        member,
        version: i16::from(random.below(8) > 0),
        epoch: Epoch::Current,
        topics: None,
        regex: None,
        owned: if random.below(3) > 0 {
            Owned::Assigned
        } else {
            Owned::Unchanged
        },
        has_timeout: random.below(4) == 0,
        is_static,
        assignor: None,
    };
    match random.below(20) {
        0..=4 => beat.topics = Some(1 + random.below(7) as u8),
        5 => beat.topics = Some(0),
        6 => {
            // Told in full, so that the answer names the assignment.
            beat.regex = Some(REGEXES[random.below(4) as usize]);
            (beat.owned, beat.has_timeout, beat.topics) = (Owned::Assigned, true, Some(0));
        }
        8 => beat.epoch = Epoch::Is(-1),
        9 if is_static => beat.epoch = Epoch::Is(-2),
        10 => beat.epoch = Epoch::Is(0),
        _ => {}
    }
    if is_wrong {
        match random.below(6) {
            0 => beat.owned = Owned::Nothing,
            1 => beat.owned = Owned::AllButOne,
            2 => beat.owned = Owned::Foreign,
            3 => beat.assignor = Some(["range", "none"][random.below(2) as usize]),
            4 => beat.is_static = !is_static,
            // An expression is told twice, which a wrong epoch would make two different requests.
            _ if beat.regex.is_none() => beat.epoch = epoch(random, true),
            _ => {}
        }
    }
    beat
}

fn classic_step(random: &mut Random, member: usize, is_static: bool, is_wrong: bool) -> Step {
    const PROTOCOLS: [&[&str]; 3] = [&["range"], &["range", "roundrobin"], &["roundrobin"]];
    let generation = epoch(random, is_wrong);
    match random.below(20) {
        0..=8 => Step::Join {
            member,
            version: [5, 9, 9][random.below(3) as usize],
            is_static: is_static != is_wrong,
            topics: 1 + random.below(7) as u8,
            has_owned: random.below(2) > 0,
            protocols: match is_wrong {
                true => PROTOCOLS[random.below(3) as usize],
                false => PROTOCOLS[random.below(2) as usize],
            },
        },
        9..=13 => Step::Sync { member, generation },
        14..=17 => Step::Heartbeat {
            member,
            generation,
            is_static,
        },
        _ => Step::Leave { member, is_static },
    }
}

fn commit(random: &mut Random, member: usize, is_classic: bool, is_wrong: bool) -> Step {
    let topic = random.below(TOPICS.len() as u64) as usize;
    Step::Commit {
        member: (random.below(5) > 0).then_some(member),
        is_classic,
        version: [8, 9, 9, 10][random.below(4) as usize],
        epoch: epoch(random, is_wrong),
        topic,
        partition: random.below(TOPICS[topic].1 as u64) as i32,
    }
}
