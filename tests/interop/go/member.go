package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// groupMember is one member of a group in which members of several clients meet. It reads and prints what Java's
// GroupMember does; its arguments are the topics, joined with commas, and Kafka's settings as key=value.
func groupMember(s *suite, rest []string) {
	diary := &diary{owned: map[string]bool{}}
	options := []kgo.Opt{
		kgo.ConsumeTopics(strings.Split(rest[0], ",")...), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(diary.take),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
			must(client.CommitUncommittedOffsets(ctx))
			diary.give("REVOKED", partitions)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			diary.give("LOST", partitions)
		}),
	}
	for _, setting := range rest[1:] {
		name, text, _ := strings.Cut(setting, "=")
		options = append(options, memberOptions(name, text)...)
	}
	client := s.client(options...)
	var closing atomic.Bool
	go func() {
		// The input ends when the parent process ends.
		bufio.NewReader(os.Stdin).ReadString('\n')
		closing.Store(true)
	}()
	for !closing.Load() {
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		for _, record := range fetches.Records() {
			diary.say("READ", fmt.Sprintf("%s-%d\t%s", record.Topic, record.Partition, record.Value))
		}
		diary.place(client)
		client.AllowRebalance()
	}
	must(client.CommitUncommittedOffsets(background))
	client.CloseAllowingRebalance()
	diary.say("CLOSED", "")
}

func memberOptions(name, text string) []kgo.Opt {
	milliseconds := func() time.Duration { return time.Duration(value(strconv.Atoi(text))) * time.Millisecond }
	switch name {
	case "group.id":
		return []kgo.Opt{kgo.ConsumerGroup(text)}
	case "auto.offset.reset":
		return []kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	case "enable.auto.commit":
		return nil
	case "auto.commit.interval.ms":
		return []kgo.Opt{kgo.AutoCommitInterval(milliseconds())}
	case "session.timeout.ms":
		return []kgo.Opt{kgo.SessionTimeout(milliseconds())}
	case "heartbeat.interval.ms":
		return []kgo.Opt{kgo.HeartbeatInterval(milliseconds())}
	case "group.protocol":
		return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
	case "partition.assignment.strategy":
		if strings.HasSuffix(text, ".RangeAssignor") {
			return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
		}
		return []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	}
	panic("franz-go's member does not know " + name)
}

// diary is what a member has, and the lines about it.
type diary struct {
	lock  sync.Mutex
	owned map[string]bool
	last  string
}

func (d *diary) take(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for _, name := range partitionNames(partitions) {
		d.owned[name] = true
	}
}

func (d *diary) give(what string, partitions map[string][]int32) {
	names := partitionNames(partitions)
	d.say(what, strings.Join(names, ","))
	d.lock.Lock()
	defer d.lock.Unlock()
	for _, name := range names {
		delete(d.owned, name)
	}
}

// place says what the member has, if that has changed.
func (d *diary) place(client *kgo.Client) {
	_, generation := client.GroupMetadata()
	d.lock.Lock()
	var names []string
	for name := range d.owned {
		names = append(names, name)
	}
	slices.Sort(names)
	place := fmt.Sprintf("%d\t%s", generation, strings.Join(names, ","))
	hasChanged := place != d.last
	d.last = place
	d.lock.Unlock()
	if hasChanged {
		d.say("PLACE", place)
	}
}

func (d *diary) say(what, text string) {
	d.lock.Lock()
	defer d.lock.Unlock()
	fmt.Printf("%s\t%s\n", what, text)
}

func partitionNames(partitions map[string][]int32) []string {
	var names []string
	for topic, numbers := range partitions {
		for _, number := range numbers {
			names = append(names, fmt.Sprintf("%s-%d", topic, number))
		}
	}
	slices.Sort(names)
	return names
}
