package main

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// receiver is the consumer of an end-to-end run: it checks the records and keeps the latency per interval.
type receiver struct {
	w           workload
	warm, total int64
	start       atomic.Int64
	ready, done chan struct{}
	next        []int64
	received    int64
	duplicates  int64
	disordered  int64
	whole       *histogram
	intervals   []*histogram
}

const intervalSeconds = 5

func newReceiver(w workload, warm, total int64) *receiver {
	r := &receiver{w: w, warm: warm, total: total, ready: make(chan struct{}), done: make(chan struct{}), whole: newHistogram()}
	for i := range w.Partitions {
		r.next = append(r.next, int64(i))
	}
	return r
}

func (r *receiver) run(s *suite) {
	ends := value(s.admin.ListEndOffsets(background, r.w.Topic))
	offsets := map[int32]kgo.Offset{}
	for i := range int32(r.w.Partitions) {
		end, _ := ends.Lookup(r.w.Topic, i)
		offsets[i] = kgo.NewOffset().At(end.Offset)
	}
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.w.Topic: offsets}))
	defer client.Close()
	close(r.ready)
	for all := int64(0); all < r.total; {
		fetches := client.PollFetches(background)
		must(fetches.Err())
		now := time.Now().UnixNano()
		fetches.EachRecord(func(record *kgo.Record) {
			all++
			r.take(record, now)
		})
	}
	close(r.done)
}

func (r *receiver) take(record *kgo.Record, now int64) {
	intended := int64(binary.LittleEndian.Uint64(record.Value))
	number := int64(binary.LittleEndian.Uint64(record.Value[8:]))
	switch expected := r.next[record.Partition]; {
	case number < expected:
		r.duplicates++
	case number > expected:
		r.disordered++
	}
	r.next[record.Partition] = number + int64(r.w.Partitions)
	if number < r.warm {
		return
	}
	r.received++
	latency := time.Duration(now - intended)
	r.whole.add(latency)
	interval := int((intended - r.start.Load()) / (intervalSeconds * 1e9))
	for len(r.intervals) <= interval {
		r.intervals = append(r.intervals, newHistogram())
	}
	r.intervals[max(interval, 0)].add(latency)
}

func (r *receiver) report(into *result) {
	into.Received, into.Duplicates, into.Disordered = r.received, r.duplicates, r.disordered
	into.Intended = r.whole.percentiles()
	into.RawMicrosCount = r.whole.raw()
	for i, interval := range r.intervals {
		into.Curve = append(into.Curve, point{FromS: float64(i * intervalSeconds), percentiles: *interval.percentiles()})
	}
	if into.Sent != into.Acknowledged || into.Sent != into.Received {
		into.Errors += max(into.Sent-into.Received, into.Sent-into.Acknowledged, 1)
	}
}
