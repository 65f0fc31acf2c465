package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// drain reads topics from start to end: every offset must be there, once and in order.
func drain(s *suite, topics []string) {
	type place struct {
		topic     string
		partition int32
	}
	ends, err := s.admin.ListEndOffsets(background, topics...)
	must(err)
	must(ends.Error())
	starts := map[string]map[int32]kgo.Offset{}
	following, missing := map[place]int64{}, int64(0)
	for topic, partitions := range ends {
		starts[topic] = map[int32]kgo.Offset{}
		for partition, end := range partitions {
			starts[topic][partition] = kgo.NewOffset().AtStart()
			missing += end.Offset
		}
	}
	client := s.client(kgo.ConsumePartitions(starts), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(background, 90*time.Second)
	defer cancel()
	for missing > 0 {
		fetches := client.PollFetches(ctx)
		check(ctx.Err() == nil, "%d records are missing", missing)
		for _, failed := range fetches.Errors() {
			check(false, "%s-%d: %v", failed.Topic, failed.Partition, failed.Err)
		}
		for _, record := range fetches.Records() {
			at := place{record.Topic, record.Partition}
			check(following[at] == record.Offset, "offset %d in %v where %d is due", record.Offset, at, following[at])
			following[at]++
			missing--
		}
	}
}
