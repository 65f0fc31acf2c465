package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// settleLimit is how long a group may take until each member has its share.
const settleLimit = 5 * time.Minute

// ownership knows which member has each partition, as the members are told.
type ownership struct {
	lock    sync.Mutex
	owners  map[int32]*kgo.Client
	changed time.Time
	// twice counts partitions that a member got before another had given them up.
	twice int64
}

func (o *ownership) assigned(client *kgo.Client, partitions []int32) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.changed = time.Now()
	for _, partition := range partitions {
		if o.owners[partition] != nil {
			o.twice++
		}
		o.owners[partition] = client
	}
}

func (o *ownership) givenUp(client *kgo.Client, partitions []int32) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.changed = time.Now()
	for _, partition := range partitions {
		if o.owners[partition] == client {
			delete(o.owners, partition)
		}
	}
}

// isEven tells whether every partition has an owner and no member has two more than another.
func (o *ownership) isEven(partitions, members int) bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	shares := map[*kgo.Client]int{}
	for _, owner := range o.owners {
		shares[owner]++
	}
	least := partitions / members
	for _, share := range shares {
		if share < least || share > least+1 {
			return false
		}
	}
	return len(o.owners) == partitions && (len(shares) == members || least == 0)
}

// settle waits until the partitions are shared out and nothing has changed for as long as -seconds says, and returns the time of the
// last change since begin, in seconds.
func (o *ownership) settle(begin time.Time, w workload, members int) float64 {
	quiet := time.Duration(w.Seconds * 1e9)
	for time.Since(begin) < settleLimit {
		time.Sleep(20 * time.Millisecond)
		o.lock.Lock()
		changed := o.changed
		o.lock.Unlock()
		if changed.After(begin) && time.Since(changed) > quiet && o.isEven(w.Partitions, members) {
			return changed.Sub(begin).Seconds()
		}
	}
	panic("the group did not settle")
}

// rebalance measures how long a group of the consumer protocol takes to share out its partitions: when all members start, when one
// more joins, and when one leaves.
func rebalance(s *suite, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}, Settled: map[string]float64{}}
	all := &ownership{owners: map[int32]*kgo.Client{}}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var polling sync.WaitGroup
	join := func() *kgo.Client {
		given := func(to func(*kgo.Client, []int32)) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
				if len(partitions[w.Topic]) > 0 {
					to(client, partitions[w.Topic])
				}
			}
		}
		client := s.client(
			kgo.ConsumerGroup(w.Topic), kgo.ConsumeTopics(w.Topic), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.ServerSideBalancer(),
			kgo.OnPartitionsAssigned(given(all.assigned)), kgo.OnPartitionsRevoked(given(all.givenUp)), kgo.OnPartitionsLost(given(all.givenUp)),
		)
		polling.Add(1)
		go func() {
			defer polling.Done()
			for ctx.Err() == nil && !client.PollFetches(ctx).IsClientClosed() {
			}
		}()
		return client
	}
	before := measure(w)
	begin := time.Now()
	var members []*kgo.Client
	for range w.Members {
		members = append(members, join())
	}
	r.Settled["start"] = all.settle(begin, w, len(members))

	begin = time.Now()
	members = append(members, join())
	r.Settled["join"] = all.settle(begin, w, len(members))

	begin = time.Now()
	members[0].Close()
	members = members[1:]
	r.Settled["leave"] = all.settle(begin, w, len(members))

	r.account(before, measure(w))
	r.Duplicates = all.twice
	cancel()
	var closing sync.WaitGroup
	for _, member := range members {
		closing.Add(1)
		go func() {
			defer closing.Done()
			member.Close()
		}()
	}
	closing.Wait()
	polling.Wait()
	return r
}
