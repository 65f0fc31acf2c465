package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func groupCases(s *suite) {
	s.run("group of two, RangeAssignor", func() { groupOfTwo(s, "range", kgo.RangeBalancer()) })
	s.run("group of two, CooperativeStickyAssignor", func() {
		groupOfTwo(s, "cooperative", kgo.CooperativeStickyBalancer())
	})
	s.run("static membership", func() { staticMembership(s) })
	s.run("commit and fetch offsets", func() { offsets(s) })
	s.run("group administration", func() { groupAdministration(s) })
}

// member is one group member that polls until it is stopped.
type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[int32]bool
	values   map[string]bool
	changes  atomic.Int64
	cancel   context.CancelFunc
	done     chan struct{}
}

func (s *suite) join(group, topic string, options ...kgo.Opt) *member {
	m := &member{assigned: map[int32]bool{}, values: map[string]bool{}, done: make(chan struct{})}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range partitions[topic] {
				if to {
					m.assigned[partition] = true
				} else {
					delete(m.assigned, partition)
				}
			}
			m.changes.Add(1)
		}
	}
	m.client = s.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(10 * time.Second),
		kgo.AutoCommitInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}, options...)...)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(background)
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := m.client.PollFetches(ctx)
			m.lock.Lock()
			for _, record := range fetches.Records() {
				m.values[string(record.Value)] = true
			}
			m.lock.Unlock()
		}
	}()
	return m
}

func (m *member) partitions() map[int32]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	copied := map[int32]bool{}
	for partition := range m.assigned {
		copied[partition] = true
	}
	return copied
}

func (m *member) read(into map[string]bool) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	for text := range m.values {
		into[text] = true
	}
	return len(into)
}

func (m *member) stop() {
	m.cancel()
	<-m.done
	must(m.client.CommitMarkedOffsets(background))
	if err := m.client.CommitUncommittedOffsets(background); err != nil && !errors.Is(err, context.Canceled) {
		panic(err)
	}
	m.client.Close()
}

func (s *suite) describe(group string) kadm.DescribedGroup {
	described := value(s.admin.DescribeGroups(background, group))[group]
	must(described.Err)
	return described
}

func groupOfTwo(s *suite, name string, balancer kgo.GroupBalancer) {
	topic, group := "go-two-"+name, "go-group-"+name
	s.createTopic(topic, 6)
	s.fill(topic, -1, 6, 300)
	first := s.join(group, topic, kgo.Balancers(balancer))
	eventually("the first member has all partitions", func() bool { return len(first.partitions()) == 6 })
	second := s.join(group, topic, kgo.Balancers(balancer))
	eventually("the partitions are shared", func() bool {
		one, two := first.partitions(), second.partitions()
		for partition := range two {
			if one[partition] {
				return false
			}
		}
		return len(one) == 3 && len(two) == 3
	})
	eventually("the group is stable with two members", func() bool {
		described := s.describe(group)
		return described.State == "Stable" && len(described.Members) == 2
	})
	s.fill(topic, -1, 6, 600)
	seen := map[string]bool{}
	eventually("every value was read", func() bool { first.read(seen); return second.read(seen) == 600 })
	second.stop()
	eventually("the first member has all partitions again", func() bool { return len(first.partitions()) == 6 })
	eventually("all 900 records are committed", func() bool {
		committed := int64(0)
		value(s.admin.FetchOffsets(background, group)).Each(func(offset kadm.OffsetResponse) {
			must(offset.Err)
			committed += offset.At
		})
		return committed == 900
	})
	first.stop()
}

func staticMembership(s *suite) {
	const topic, group = "go-static", "go-static"
	s.createTopic(topic, 4)
	join := func(instance string) *member {
		return s.join(group, topic, kgo.InstanceID(instance), kgo.Balancers(kgo.RangeBalancer()))
	}
	first, second := join("one"), join("two")
	eventually("the partitions are shared", func() bool {
		return len(first.partitions()) == 2 && len(second.partitions()) == 2
	})
	before := second.partitions()
	changes := first.changes.Load()
	_, generation := first.client.GroupMetadata()
	second.cancel()
	<-second.done
	// A static member that closes does not leave (KIP-345): other members must not notice.
	second.client.Close()
	again := join("two")
	eventually("the member is back", func() bool { return len(again.partitions()) == 2 })
	same(before, again.partitions(), "assignment after the restart")
	time.Sleep(time.Second)
	_, after := first.client.GroupMetadata()
	same(generation, after, "generation of the member that stayed")
	same(changes, first.changes.Load(), "rebalances of the member that stayed")
	instances := map[string]bool{}
	for _, described := range s.describe(group).Members {
		check(described.InstanceID != nil, "a member has no instance id")
		instances[*described.InstanceID] = true
	}
	same(map[string]bool{"one": true, "two": true}, instances, "instances")
	first.stop()
	again.stop()
	left := value(s.admin.LeaveGroup(background,
		kadm.LeaveGroup(group).InstanceIDs("one", "two").Reason("the test is over")))
	left.Each(func(response kadm.LeaveGroupResponse) { must(response.Err) })
	eventually("the group is empty", func() bool { return s.describe(group).State == "Empty" })
}

func offsets(s *suite) {
	const topic, group = "go-offsets", "go-offsets"
	s.createTopic(topic, 2)
	s.fill(topic, 0, 1, 50)
	same(0, len(value(s.admin.FetchOffsets(background, group))), "offsets before any commit")
	var commit kadm.Offsets
	commit.Add(kadm.Offset{Topic: topic, Partition: 0, At: 17, LeaderEpoch: 0, Metadata: "a note"})
	must(s.admin.CommitAllOffsets(background, group, commit))
	fetched := value(s.admin.FetchOffsets(background, group))
	offset, found := fetched.Lookup(topic, 0)
	check(found, "the committed offset is not there")
	same(int64(17), offset.At, "committed offset")
	same("a note", offset.Metadata, "metadata")
	_, found = fetched.Lookup(topic, 1)
	check(!found, "partition 1 has an offset")

	reader := s.join(group, topic)
	seen := map[string]bool{}
	eventually("the rest was read", func() bool { return reader.read(seen) == 33 })
	check(!seen["value-16"] && seen["value-17"], "reading began elsewhere than at offset 17")
	reader.stop()
	var large kadm.Offsets
	large.Add(kadm.Offset{Topic: topic, At: 1, Metadata: string(make([]byte, 5000))})
	is(kerr.OffsetMetadataTooLarge, s.admin.CommitAllOffsets(background, group, large))
}

func groupAdministration(s *suite) {
	const topic, group = "go-administered", "go-administered"
	s.createTopic(topic, 2)
	s.fill(topic, 0, 2, 20)
	s.fill(topic, 1, 2, 20)
	m := s.join(group, topic, kgo.ClientID("the-client"))
	seen := map[string]bool{}
	eventually("the member has read", func() bool { return len(m.partitions()) == 2 && m.read(seen) == 20 })
	described := s.describe(group)
	same(1, len(described.Members), "members")
	same("the-client", described.Members[0].ClientID, "client id")
	assignment, ok := described.Members[0].Assigned.AsConsumer()
	check(ok && len(assignment.Topics) == 1, "the assignment cannot be read")
	same(topic, assignment.Topics[0].Topic, "assigned topic")
	same("consumer", described.ProtocolType, "protocol type")
	is(kerr.NonEmptyGroup, value(s.admin.DeleteGroups(background, group))[group].Err)
	m.stop()

	eventually("the group is empty", func() bool { return s.describe(group).State == "Empty" })
	listed := value(s.admin.ListGroups(background))
	same("Empty", listed[group].State, "listed state")
	var offset kadm.Offsets
	offset.AddOffset(topic, 0, 3, -1)
	must(s.admin.CommitAllOffsets(background, group, offset))
	remove := kadm.TopicsSet{}
	remove.Add(topic, 0)
	must(value(s.admin.DeleteOffsets(background, group, remove)).Error())
	fetched := value(s.admin.FetchOffsets(background, group))
	_, found := fetched.Lookup(topic, 0)
	check(!found, "the deleted offset is still there")
	other, _ := fetched.Lookup(topic, 1)
	same(int64(20), other.At, "offset that was not deleted")
	must(value(s.admin.DeleteGroups(background, group))[group].Err)
	is(kerr.GroupIDNotFound, value(s.admin.DeleteGroups(background, group))[group].Err)

	// A JoinGroup that no real client sends has no effect on others (KIP-394: the first answer only assigns a member id).
	request := kmsg.NewPtrJoinGroupRequest()
	request.Group, request.ProtocolType = "go-malformed", "consumer"
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = 10_000, 10_000
	response, err := request.RequestWith(background, s.plain)
	must(err)
	check(response.ErrorCode != 0, "a JoinGroup without protocols was accepted, member %s", strconv.Quote(response.MemberID))
}
